"""``bitl icu``: from MIMIC-IV to transitions, and the hypotension study on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ..errors import DataError
from .terminal import console

if TYPE_CHECKING:
    from ..discretize import Scheme
    from ..icu.audit import Audit, Section

ROUNDS = 10_000  # in each of BITL's four runs
icu = typer.Typer(
    name="icu",
    help="MIMIC-IV: build transitions, run the hypotension study, make up tables to try it on.",
    no_args_is_help=True,
)
SchemeOption = Annotated[Path | None, typer.Option(help="States and rewards (TOML); by default the paper's.")]
SmallCounts = Annotated[
    bool, typer.Option("--show-small-counts", help="Show counts of 1 to 9, which are hidden otherwise.")
]


@icu.command()
def build(
    mimic: Annotated[str, typer.Option(help="Folder with hosp and icu, or postgresql://user@host/database.")],
    out: Annotated[Path, typer.Option(help="The file to write; the audit goes beside it.")] = Path(
        "out/icu/transitions.parquet"
    ),
    rule: Annotated[list[str] | None, typer.Option(help="Change a rule: NAME=VALUE; see bitl icu rules.")] = None,
    scheme: SchemeOption = None,
    rename: Annotated[
        list[str] | None, typer.Option(help="A column that has another name in this copy: table.column=NAME.")
    ] = None,
    keep_ids: Annotated[bool, typer.Option("--keep-ids", help="Keep MIMIC's ids of patients and stays.")] = False,
    memory: Annotated[
        str, typer.Option(help="What DuckDB may use before it spills into the output folder.")
    ] = "1500MB",
    show_small_counts: SmallCounts = False,
) -> None:
    """Build transitions from MIMIC-IV and show who was dropped and what is missing."""
    from ..icu import Rules
    from ..icu import build as build_transitions
    from ..icu.files import check_target, write

    check_target(out)
    rules, states, columns = Rules.parse(rule or ()), _scheme(scheme), _renamed(rename or ())
    with _steps() as told:
        built = build_transitions(
            mimic,
            scratch=out.parent,
            rules=rules,
            scheme=states,
            renamed=columns,
            keep_ids=keep_ids,
            memory=memory,
            on_step=told,
        )
        told("writing")
        written = write(built.batch, built.audit, out, protect=not show_small_counts)
    show_audit(built.audit, protect=not show_small_counts)
    console.print(f"Written to {out.parent}: " + ", ".join(p.name for p in written), highlight=False)


@icu.command()
def run(
    transitions: Annotated[
        Path, typer.Option(help="What bitl icu build wrote, or a table with the same columns.")
    ] = Path("out/icu/transitions.parquet"),
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and the report.")] = Path("out/icu"),
    epsilon: Annotated[list[float] | None, typer.Option(help="By default 5, 10 and 15.")] = None,
    tune: Annotated[bool, typer.Option(help="Also try many epsilons on held-out patients.")] = True,
    validation: Annotated[float, typer.Option(help="Share of the patients held out; 0 for none.")] = 0.2,
    folds: Annotated[int, typer.Option(help="Folds of the tuning, by patient.")] = 5,
    share: Annotated[
        float, typer.Option(help="An action is valid if taken in at least this share of the visits.")
    ] = 0.05,
    method: Annotated[list[str] | None, typer.Option(help="By default MLE, ITL, MCE, PS and BITL.")] = None,
    draws: Annotated[int, typer.Option(help="Posterior draws of each sampler.")] = 1000,
    rounds: Annotated[int, typer.Option(help="Rounds in each of BITL's four runs; more is better.")] = ROUNDS,
    ask: Annotated[
        list[str] | None, typer.Option(help="A what-if figure: bins and action, such as 1,1,1,2:2 (state 1,1,1,2).")
    ] = None,
    scheme: SchemeOption = None,
    seed: Annotated[int, typer.Option(help="Seed of split, folds and samplers.")] = 0,
    show_small_counts: SmallCounts = False,
) -> None:
    """Run the study: tuning, five methods, tables beside the published ones, what-if figures."""
    from ..experiments import icu as study
    from ..experiments import icu_report as report
    from ..icu import read_transitions

    batch = read_transitions(transitions, scheme=_scheme(scheme))
    settings = study.Settings(
        epsilons=tuple(epsilon or study.Settings.epsilons),
        tuned=study.TUNED if tune else (),
        methods=tuple(method or study.STUDY_METHODS),
        validation=validation,
        share=share,
        folds=folds,
        draws=draws,
        rounds=rounds,
        seed=seed,
    )
    questions = [_question(words, batch.scheme) for words in ask or ()]
    with _steps() as told:
        found = study.run(batch, settings=settings, ask=questions, on_step=told)
        told("writing")
        written = report.write(found, out, protect=not show_small_counts)
    console.print(report.summary(found, protect=not show_small_counts), study.recommended(found), highlight=False)
    for table in report.tables(found):
        console.print(table.rich())
    for line in report.certificates(found):
        console.print(line, highlight=False)
    for line in study.warnings_of(found):
        console.print(f"[yellow]warning:[/] {line}", highlight=False)
    names = ", ".join(str(path.relative_to(out)) for path in written if path.suffix not in (".svg", ".tex", ".csv"))
    console.print(f"\nWritten to {out}: {names}, with CSV, LaTeX and SVG beside them.", highlight=False)


@icu.command()
def synthesise(
    out: Annotated[Path, typer.Option(help="A new or empty folder.")],
    patients: Annotated[int, typer.Option(help="Number of made-up patients.")] = 300,
    chart_rows: Annotated[int | None, typer.Option(help="At least this many rows in chartevents.")] = None,
    file_format: Annotated[str, typer.Option("--format", help="csv.gz, csv or parquet.")] = "csv.gz",
    seed: Annotated[int, typer.Option(help="The same seed gives the same tables.")] = 0,
) -> None:
    """Make up tables in the shape of MIMIC-IV, to try things out; no number comes from a patient."""
    from ..icu import synthesise as make

    with _steps() as told:
        rows = make(out, patients=patients, seed=seed, chart_rows=chart_rows, file_format=file_format, on_step=told)
    console.print(f"Written to {out}: " + ", ".join(f"{k} ({n:,} rows)" for k, n in rows.items()), highlight=False)


@icu.command()
def rules() -> None:
    """List every rule of bitl icu build: its default, its meaning, and where it comes from."""
    from ..icu import Rules

    table = Table(title="Rules of bitl icu build; change one with --rule NAME=VALUE", title_justify="left")
    for name in ("rule", "default", "meaning", "source"):
        table.add_column(name)
    for row in Rules.describe():
        choices = f" ({', '.join(row['choices'])})" if row["choices"] else ""
        table.add_row(row["rule"], str(row["default"]), row["meaning"] + choices, row["source"])
    console.print(table)


def show_audit(audit: Audit, *, protect: bool) -> None:
    """Print an audit: its tables, and its warnings last."""
    for section in audit.sections:
        if section.key != "actions_per_state":  # long: in the files
            console.print(_table(section, protect))
    for words in audit.warnings:
        console.print(f"[yellow]warning:[/] {words}", highlight=False)


def _table(section: Section, protect: bool) -> Table:
    table = Table(title=section.title, title_justify="left")
    for i, name in enumerate(section.columns):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in section.cells(protect):
        table.add_row(*row)
    return table


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """Show what is being done, and for how long."""
    with console.status("starting ...") as status:
        yield lambda words: status.update(f"{words} ...")


def _scheme(path: Path | None) -> Scheme | None:
    from ..discretize import Scheme

    return None if path is None else Scheme.from_toml(path)


def _renamed(words: list[str] | tuple[str, ...]) -> dict[str, str]:
    found = {}
    for word in words:
        key, sign, name = word.partition("=")
        if not sign or not name:
            raise DataError(f"A renamed column reads like chartevents.stay_id=icustay_id. Got {word!r} instead.")
        found[key.strip()] = name.strip()
    return found


def _question(words: str, scheme: Scheme) -> tuple[int, int]:
    bins, _, action = words.rpartition(":")
    try:
        return int(scheme.encode([int(b) for b in bins.split(",")])), int(action)
    except ValueError:
        raise DataError(
            f"A question reads like 1,1,1,2:2, one bin per variable and the number of an action. Got {words!r} instead."
        ) from None
