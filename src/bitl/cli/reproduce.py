"""``bitl reproduce``: the paper's studies, ours beside the published numbers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import DataError
from .terminal import console, progress

if TYPE_CHECKING:
    from ..experiments.engine import Engine
    from ..experiments.runner import Study
    from ..experiments.store import Row
    from ..experiments.unit import How, Unit

WHAT = ("synthetic", "joint", "epsilon", "sensitivity", "feasible-region", "counterfactual", "icu", "all")


def reproduce(
    what: Annotated[str, typer.Argument(help=", ".join(WHAT[:-1]) + ", or all.")],
    stochastic: Annotated[
        list[str] | None, typer.Option(help="Per cent of stochastic-policy states: 40, 20 or 0; by default all three.")
    ] = None,
    datasets: Annotated[int | None, typer.Option(help="Gridworld batches (100; joint and epsilon: 20).")] = None,
    worlds: Annotated[int | None, typer.Option(help="Randomworlds (10).")] = None,
    per_world: Annotated[int | None, typer.Option(help="Batches of each randomworld (50).")] = None,
    sweep: Annotated[int | None, typer.Option(help="Batches per coverage, for the figures (20).")] = None,
    draws: Annotated[int | None, typer.Option(help="Posterior draws of each sampler (1000).")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds in each of BITL's four runs (3000).")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this method; may be repeated.")] = None,
    plugin: Annotated[list[str] | None, typer.Option(help="A module that registers methods of your own.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version of everything, in minutes.")] = False,
    engine: Annotated[str, typer.Option(help="Who computes: local (processes of this machine) or dask.")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="Address of the Dask scheduler, tcp://host:8786.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes of the local engine; by default one per core.")] = None,
    mimic: Annotated[
        str | None, typer.Option(help="For icu: a folder of MIMIC-IV with hosp and icu, or postgresql://user@host/db.")
    ] = None,
    transitions: Annotated[Path | None, typer.Option(help="For icu: what bitl icu build wrote, instead.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the whole study.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for results, tables and figures.")] = Path("out/reproduce"),
    page: Annotated[Path | None, typer.Option(help="Write one Markdown page of everything to this file.")] = None,
) -> None:
    """Run a study of the paper and set its numbers beside the published ones; a re-run does only what is missing."""
    from .. import _validate
    from ..experiments import reproduction, synthetic
    from ..experiments.runner import STUDIES
    from ..experiments.unit import LEVELS, How

    _validate.one_of(what, "what", WHAT)
    if what == "icu" and mimic is None and transitions is None:
        raise DataError("The ICU study needs data: pass --mimic FOLDER, or --transitions FILE from bitl icu build.")
    levels = tuple(_validate.one_of(level, "stochastic", LEVELS) for level in stochastic or LEVELS)
    how = How(seed, draws or (200 if quick else 1000), rounds or (300 if quick else 3000), tuple(plugin or ()))
    number = partial(_number, quick)
    size = synthetic.Size(
        levels, number(datasets, 2, 100), number(worlds, 1, 10), number(per_world, 2, 50), number(sweep, 1, 20)
    )
    hands = _engine(engine, scheduler, workers)
    wanted = WHAT[:-1] if what == "all" else (what,)
    some = number(datasets, 2, 20)
    rows = {}
    for name, study in STUDIES.items():
        if name in wanted:
            todo = study.units(size, how, method) if name == "synthetic" else study.units(some, how)
            rows[name] = _run(study, todo, hands, out)
    _show(wanted, rows, how, out)
    if mimic is not None or transitions is not None:
        _icu(mimic, transitions, how, quick, out / "icu")
    elif "icu" in wanted:
        console.print("Left out: icu, which needs --mimic or --transitions.", highlight=False)
    if page is not None:
        sizes = {"datasets": datasets, "worlds": worlds, "per-world": per_world, "sweep": sweep}
        chosen = {"stochastic": stochastic, "method": method, "plugin": plugin, **sizes}
        words = _command(what, quick=quick, draws=draws, rounds=rounds, seed=seed or None, **chosen)
        reproduction.write_page(page, rows, out, how=how, command=words)
        console.print(f"Page: {page}", highlight=False)


def _number(quick: bool, given: int | None, small: int, full: int) -> int:
    """Return the size that was asked for, 0 included, or else the small or the full one."""
    if given is not None and given < 0:
        raise DataError(f"A number of batches or worlds must be at least 0. Got {given} instead.")
    return given if given is not None else small if quick else full


def _icu(mimic: str | None, transitions: Path | None, how: How, quick: bool, out: Path) -> None:
    """Build the transitions if they are not given, and run the hypotension study on them."""
    from .icu import ROUNDS, build, run

    if transitions is None:
        transitions = out / "transitions.parquet"
        build(mimic=str(mimic), out=transitions)
    rounds = how.rounds if quick else max(how.rounds, ROUNDS)
    run(transitions=transitions, out=out, draws=how.draws, rounds=rounds, seed=how.seed, tune=not quick)


def _command(what: str, **options: object) -> str:
    """Return the command that was given, options left at their defaults left out."""
    words = ["bitl reproduce", what]
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        given = [one for one in values if one is not None and one is not False]  # 0 is a size
        words += [f"--{name}" if one is True else f"--{name} {one}" for one in given]
    return " ".join(words)


def _show(wanted: tuple[str, ...], rows: dict[str, list[Row]], how: How, out: Path) -> None:
    """Print what is not a table and draw the figures."""
    from ..experiments import epsilon, figures, sensitivity
    from ..experiments.verdicts import verdicts

    if rows.get("synthetic"):
        for verdict in verdicts(rows["synthetic"], how.seed):
            console.print(f"[bold]{verdict.claim}[/]: {verdict.verdict}", highlight=False)
        _written([*figures.study_figures(rows["synthetic"], out), *figures.gridworld_figure(out)])
    if rows.get("epsilon"):
        found = epsilon.recommendations(rows["epsilon"])
        words = ", ".join(f"{value:g} ({number} batches)" for value, number in found.items())
        console.print(f"Recommended epsilons; the experts' own is 3: {words}", highlight=False)
        _written(figures.epsilon_figure(rows["epsilon"], out))
    if rows.get("sensitivity"):
        console.print(sensitivity.markdown(rows["sensitivity"]), highlight=False)
    if "feasible-region" in wanted:
        _written(figures.feasible_region_figure(out))
    if "counterfactual" in wanted:
        with console.status("fitting every method to one batch ..."):
            _written(figures.counterfactual_figure(out, how))


def _engine(name: str, scheduler: str | None, workers: int | None) -> Engine:
    from .. import _validate
    from ..experiments.dask_engine import DaskEngine
    from ..experiments.engine import LocalEngine

    _validate.one_of(name, "engine", ("local", "dask"))
    return DaskEngine(scheduler) if name == "dask" else LocalEngine(workers)


def _run(study: Study, units: list[Unit], engine: Engine, out: Path) -> list[Row]:
    """Compute what is missing, write and print the tables, and return the rows."""
    from ..experiments.runner import run_units, write_tables
    from ..experiments.store import Store

    store = Store(out, study.name)
    with progress(f"{study.name}: units", len(units)) as advance:
        run_units(study, store, units, engine, advance)
    rows = store.rows(units)
    for table in write_tables(study, rows, out):
        console.print(table.rich())
    console.print(f"Results in {store.path}, tables in {out / 'tables'}.", highlight=False)
    return rows


def _written(paths: list[Path]) -> None:
    for path in paths:
        if path.suffix == ".png":
            console.print(f"Figure: {path} (and .svg)", highlight=False)
