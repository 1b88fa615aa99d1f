"""Options that several commands share, each written once; ``expand`` turns a group into options of a command."""

from __future__ import annotations

import inspect
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ..analysis.case import Settings
from ..analysis.folder import plain
from ..tables import Columns
from .terminal import console

DATA = "Your table"
PROBLEM = "The problem"
OUTPUT = "Output"


@dataclass(frozen=True)
class DataOptions:
    """The table and its columns."""

    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A .csv, .tsv or .parquet file, or minari:NAME.", show_default=False)
    ]
    state_column: Annotated[str, typer.Option(help="Column of states.", rich_help_panel=DATA)] = "state"
    action_column: Annotated[str, typer.Option(help="Column of actions.", rich_help_panel=DATA)] = "action"
    next_column: Annotated[
        str | None,
        typer.Option(
            help="Column of next states; by default next_state, else the next row of the episode.", rich_help_panel=DATA
        ),
    ] = None
    episode_column: Annotated[
        str | None, typer.Option(help="Column of episodes; by default episode.", rich_help_panel=DATA)
    ] = None
    step_column: Annotated[
        str | None,
        typer.Option(help="Column that orders an episode; by default step, else the file.", rich_help_panel=DATA),
    ] = None
    drop_refused: Annotated[
        bool, typer.Option("--drop-refused", help="Go on without rows that cannot be used.", rich_help_panel=DATA)
    ] = False
    keep_rare: Annotated[
        bool, typer.Option("--keep-rare", help="Keep actions that appear only once.", rich_help_panel=DATA)
    ] = False

    def columns(self) -> Columns:
        """Return the columns."""
        return Columns(self.state_column, self.action_column, self.next_column, self.episode_column, self.step_column)


@dataclass(frozen=True)
class ProblemOptions:
    """The task of the experts and what counts as their choice."""

    reward: Annotated[
        str,
        typer.Option(
            help="A CSV with state,reward or state,action,reward, or a column that is constant per state.",
            rich_help_panel=PROBLEM,
            show_default=False,
        ),
    ]
    discount: Annotated[
        float,
        typer.Option(
            help="What the next step counts against this one, in [0, 1).", rich_help_panel=PROBLEM, show_default=False
        ),
    ]
    expert_share: Annotated[
        float | None,
        typer.Option(help="An action is valid from this share of a state's decisions.", rich_help_panel=PROBLEM),
    ] = None
    expert_times: Annotated[
        int | None, typer.Option(help="An action is valid if taken this often in a state.", rich_help_panel=PROBLEM)
    ] = None
    delta: Annotated[float, typer.Option(help="Pseudo-count of every transition.", rich_help_panel=PROBLEM)] = 0.001
    start: Annotated[
        str,
        typer.Option(
            help="States that count at the start: uniform (all alike), or episodes (where they begin).",
            rich_help_panel=PROBLEM,
        ),
    ] = "uniform"

    def settings(self, data: DataOptions, epsilon: float) -> Settings:
        """Return everything that determines the answers."""
        return Settings(
            data.data,
            self.reward,
            self.discount,
            epsilon,
            data.columns(),
            self.expert_share,
            self.expert_times,
            self.delta,
            self.start,
            data.drop_refused,
            data.keep_rare,
        )


@dataclass(frozen=True)
class FolderOptions:
    """The folder of a case."""

    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder that bitl fit or bitl sample wrote.", show_default=False)
    ]
    changed_data: Annotated[
        bool, typer.Option("--changed-data", help="Go on although the data file changed since.", rich_help_panel=DATA)
    ] = False


@dataclass(frozen=True)
class OutputOptions:
    """Where the answer goes."""

    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the results.", rich_help_panel=OUTPUT)] = (
        None
    )
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.", rich_help_panel=OUTPUT)] = False
    seed: Annotated[int, typer.Option(help="Seed of whatever is random.", rich_help_panel=OUTPUT)] = 0
    workers: Annotated[int | None, typer.Option(help="Threads; by default one per core.", rich_help_panel=OUTPUT)] = (
        None
    )
    replace: Annotated[
        bool, typer.Option("--replace", help="Begin a folder anew that holds another case.", rich_help_panel=OUTPUT)
    ] = False

    def show(self, content: Any, people: Callable[[], None]) -> None:
        """Print JSON or what people read."""
        if self.as_json:
            print(json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False))
        else:
            people()


def expand(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with its dataclass parameters replaced by one option per field."""
    groups: dict[str, Any] = {}
    parameters = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if not is_dataclass(parameter.annotation):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[name] = parameter.annotation
        hints = get_type_hints(parameter.annotation, include_extras=True)
        for entry in fields(parameter.annotation):
            default = inspect.Parameter.empty if entry.default is MISSING else entry.default
            parameters.append(
                inspect.Parameter(
                    entry.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[entry.name]
                )
            )

    def call(**values: Any) -> None:
        made = {
            name: kind(**{entry.name: values.pop(entry.name) for entry in fields(kind)})
            for name, kind in groups.items()
        }
        command(**made, **values)

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def command_line() -> str:
    """Return how this command was called, to be recorded."""
    return shlex.join(["bitl", *sys.argv[1:]])


def say(text: str) -> None:
    """Print a sentence as it is: labels may hold brackets, which are not markup."""
    console.print(text, highlight=False, markup=False)


def written(out: Path | None, names: list[str]) -> None:
    """Say which files were written."""
    if out is not None:
        say(f"Written to {out}: {', '.join(names)}")
