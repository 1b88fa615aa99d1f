"""``bitl transfer``, ``bitl whatif`` and ``bitl report``: questions to a folder."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Grid
from rich.text import Text

from ..errors import DataError
from .options import FolderOptions, OutputOptions, command_line, expand, say, written
from .terminal import console, waiting


def _open(folder: FolderOptions, output: OutputOptions) -> tuple[Any, list[str], Path]:
    """Open the folder, check its files, and say where the answer goes."""
    from ..analysis.folder import Folder, check_writable

    opened = Folder.open(folder.folder)
    notes = [] if folder.changed_data else opened.check_unchanged()
    target = output.out or folder.folder
    check_writable(target)
    return opened, notes, target


def _content(opened: Any, step: str, answer: dict[str, Any], seed: int) -> dict[str, Any]:
    from ..analysis.folder import versions

    return {
        "command": command_line(),
        "folder": str(opened.path),
        "versions": versions(),
        "settings": opened.summary["settings"],
        "data": opened.summary["data"],
        "seed": seed,
        step: answer,
    }


@expand
def transfer(
    folder: FolderOptions,
    reward: Annotated[Path, typer.Option(help="A CSV with the reward of the new goal.", show_default=False)],
    output: OutputOptions,
    name: Annotated[str | None, typer.Option(help="What to call the goal; by default the name of the file.")] = None,
) -> None:
    """May the model be used for another goal? The new policy, where it differs, and a verdict with its basis."""
    from ..analysis.folder import write_json, write_rows
    from ..analysis.transfer import transfer as run
    from ..tables import read_reward

    opened, notes, target = _open(folder, output)
    case = opened.case()
    goal = case.task.with_reward(read_reward(reward).reward(case.labels))
    posterior = opened.posterior(case)
    learned = posterior if posterior is not None else opened.estimate()
    if learned is None:
        raise DataError(
            f"{opened.path} holds neither an estimate nor a posterior; run bitl sample with --out {opened.path}."
        )
    with waiting("planning for the new goal ..."):
        answer = run(case, learned, goal, name=name or reward.stem, sample=opened.summary.get("sample"))
    content = _content(opened, "transfer", answer.as_dict(), output.seed)
    file = f"transfer-{_slug(answer.name, opened.summary.get('transfer', {}))}"
    write_json(target / f"{file}.json", content)
    write_rows(target / f"{file}.csv", answer.rows)
    if target == folder.folder:
        known = opened.summary.get("transfer", {})
        entry = {**answer.as_dict(), "reward": goal.reward.tolist(), "learned": opened.learned_by()}
        opened.record("transfer", {**known, answer.name: entry}, command_line())

    files = [f"{file}.json", f"{file}.csv"]
    output.show(content, lambda: _show_transfer(answer, notes, target, files))


@expand
def whatif(
    folder: FolderOptions,
    state: Annotated[str, typer.Option(help="The state, by its label.", show_default=False)],
    action: Annotated[str, typer.Option(help="The action, by its label.", show_default=False)],
    output: OutputOptions,
    top: Annotated[int, typer.Option(help="How many next states to list.")] = 5,
    mass: Annotated[float, typer.Option(help="Probability inside the credible intervals.")] = 0.9,
) -> None:
    """What happens next after an action in a state, as each method has it, with credible intervals."""
    from ..analysis.folder import write_json
    from ..analysis.whatif import comparison
    from ..analysis.whatif import whatif as run
    from ..report import style
    from ..report.next_states import draw_next_states

    opened, notes, target = _open(folder, output)
    case = opened.case()
    case.labels.state_id(state), case.labels.action_id(action)
    with waiting("asking every method ..."):
        learned = comparison(case, opened.estimate(), opened.posterior(case), seed=output.seed)
        answer = run(case, learned, state=state, action=action, top=top, mass=mass)
    content = _content(opened, "whatif", answer.as_dict(), output.seed)
    file = f"whatif-{_slug(state, case.labels.states)}-{_slug(action, case.labels.actions)}"
    write_json(target / f"{file}.json", content)
    style.save(draw_next_states(answer.answer, note=answer.note), target / file)
    if target == folder.folder:
        known = opened.summary.get("whatif", {})
        opened.record("whatif", {**known, f"{state} | {action}": answer.as_dict()}, command_line())

    files = [f"{file}.json", f"{file}.png", f"{file}.svg"]
    output.show(content, lambda: _show_whatif(answer, notes, target, files))


@expand
def report(folder: FolderOptions, output: OutputOptions) -> None:
    """One HTML file for people: coverage, certificate, policy, uncertainty, transfer, what-if, diagnostics."""
    from ..analysis.page import write_report

    opened, notes, target = _open(folder, output)
    file = target / "report.html"
    with waiting("writing the report ..."):
        write_report(opened, file, seed=output.seed, notes=notes, command=command_line())
    content = _content(opened, "report", {"file": str(file), "notes": notes}, output.seed)
    output.show(content, lambda: say(f"Written to {target}: report.html"))


def _show_transfer(answer: Any, notes: list[str], target: Path, files: list[str]) -> None:
    for note in notes:
        say(note)
    changed = [row for row in answer.rows if row["differs"]]
    if changed:
        grid = Grid(title=Text(f"Where the best action changes for {answer.name}"), title_justify="left")
        for head in ("state", "experts' goal", "new goal", "best in", "seen there"):
            grid.add_column(head)
        for row in changed[:25]:
            sure = row["probability_best"]
            share = "–" if sure is None else f"{100 * sure:.0f} % of draws"
            grid.add_row(row["state"], row["training_action"], row["new_action"], share, f"{row['seen']} times")
        console.print(grid, markup=False)
    say(answer.words)
    written(target, files)


def _show_whatif(asked: Any, notes: list[str], target: Path, files: list[str]) -> None:
    for note in notes:
        say(note)
    answer = asked.answer
    title = Text(f"After “{answer.action}” in “{answer.state}” ({asked.note})")
    grid = Grid(title=title, title_justify="left")
    grid.add_column("next state")
    for prediction in answer.predictions:
        grid.add_column(prediction.method, justify="right")
    for k, label in enumerate(answer.names):
        cells = []
        for p in answer.predictions:
            interval = "" if p.low is None or p.high is None else f" [{p.low[k]:.2f}, {p.high[k]:.2f}]"
            cells.append(f"{p.probability[k]:.2f}{interval}")
        grid.add_row(label, *cells)
    grid.caption = f"in brackets: {100 * answer.mass:g} % credible intervals"
    console.print(grid, markup=False)
    say(asked.words)
    written(target, files)


def _slug(name: str, others: Iterable[str] = ()) -> str:
    """Return a label as part of a file's name, with a number where another label would have the same."""
    slug = _plain(name)
    alike = [other for other in dict.fromkeys([*others, name]) if _plain(other) == slug]
    return slug if len(alike) == 1 else f"{slug}-{alike.index(name) + 1}"


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "-", name).strip("-").lower()[:60] or "x"
