"""The command line: parses, calls, prints. No mathematics here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ._version import __version__
from .errors import BitlError

app = typer.Typer(
    name="bitl",
    help="Learn how the world responds from the logged decisions of near-optimal experts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True)


def _version(show: bool) -> None:
    if show:
        console.print(f"bitl {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Learn how the world responds from the logged decisions of near-optimal experts."""


@app.command()
def demo(
    epsilon: Annotated[float, typer.Option(help="How far from the best action the experts stray.")] = 3.0,
    coverage: Annotated[float, typer.Option(help="Share of the states the experts are seen in, in (0, 1].")] = 0.6,
    draws: Annotated[int, typer.Option(help="Posterior draws of each sampler.")] = 1000,
    particles: Annotated[int, typer.Option(help="Particles in each of BITL's four runs; more is better.")] = 600,
    seed: Annotated[int, typer.Option(help="Seed of the batch and of the samplers.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for figures and the report.")] = Path("out"),
) -> None:
    """Fit every method to one gridworld batch and show what each of them learned."""
    from .experiments import demo as study
    from .report.grid import terminal_grid

    with console.status("drawing a batch ...") as status:
        result = study.run_demo(
            epsilon=epsilon,
            coverage=coverage,
            draws=draws,
            seed=seed,
            particles=particles,
            on_method=lambda name: status.update(f"fitting {name} ..."),
        )
        status.update("writing the report ...")
        command = f"bitl demo --epsilon {epsilon:g} --coverage {coverage:g} --draws {draws}"
        command += f" --particles {particles} --seed {seed}"
        written = study.write(result, out, command)
    console.print(study.summary(result), highlight=False)
    console.print(_metrics_table(study.table(result), [fit.name for fit in result.fits]))
    shape = result.world.shape or (5, 5)
    grids = [terminal_grid(p, result.visited, result.world.task.reward, shape) for p in study.panels(result)]
    console.print(Padding(Columns(grids, padding=(0, 4)), (0, 1)))
    console.print(
        "[bold blue]blue[/]: an optimal action   [yellow]yellow[/]: within epsilon   [red]red[/]: worse   "
        "-: no preference   [underline]underlined[/]: experts seen here   grey: soft wall   green: goal\n",
        highlight=False,
    )
    for line in study.certificates(result):
        console.print(f"[bold]{line['name']}[/]: {line['text']}", highlight=False)
    for line in study.diagnostics(result):
        console.print(f"[bold]{line['name']}[/], draws: {line['text']}", highlight=False)
    console.print(f"\nWritten to {out}: " + ", ".join(path.name for path in written), highlight=False)


@app.command()
def reproduce(
    what: Annotated[str, typer.Argument(help="synthetic, or joint.")],
    stochastic: Annotated[
        list[str] | None, typer.Option(help="Per cent of stochastic-policy states: 40, 20 or 0; by default all three.")
    ] = None,
    datasets: Annotated[int | None, typer.Option(help="Gridworld batches (100; joint: 20).")] = None,
    worlds: Annotated[int, typer.Option(help="Randomworlds.")] = 10,
    per_world: Annotated[int, typer.Option(help="Batches of each randomworld.")] = 50,
    sweep: Annotated[int, typer.Option(help="Batches per coverage, for the figures.")] = 20,
    draws: Annotated[int, typer.Option(help="Posterior draws of each sampler.")] = 1000,
    particles: Annotated[int, typer.Option(help="Particles in each of BITL's four runs.")] = 500,
    plugin: Annotated[list[str] | None, typer.Option(help="A module that registers methods of your own.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version of everything, in minutes.")] = False,
    workers: Annotated[int | None, typer.Option(help="Processes; by default one per core.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the whole study.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for results and tables.")] = Path("out/reproduce"),
) -> None:
    """Run a study of the paper and set its numbers beside the published ones; a re-run does only what is missing."""
    from . import _validate
    from .experiments import joint
    from .experiments.engine import LocalEngine
    from .experiments.runner import run_units, write_tables
    from .experiments.store import Store
    from .experiments.synthetic import LEVELS, How, Size, units

    _validate.one_of(what, "what", ("synthetic", "joint"))
    if what == "joint":
        console.print(joint.table(joint.run(datasets=datasets or (4 if quick else 20), seed=seed)))
        return
    levels = tuple(_validate.one_of(level, "stochastic", LEVELS) for level in stochastic or LEVELS)
    how = How(seed, draws, particles, tuple(plugin or ()))
    size = Size(levels, datasets or 100, worlds, per_world, sweep)
    if quick:
        how, size = How(seed, 200, 50, how.plugins), Size(levels, datasets or 2, 1, 2, 1)
    todo = units(size, how)
    store = Store(out, what, {"how": vars(how)})
    with _progress(f"{what}: units", len(todo)) as advance:
        run_units(store, todo, LocalEngine(workers), advance)
    for table in write_tables(store, todo, out):
        console.print(table.rich())
    console.print(f"Results in {store.path}, tables in {out / 'tables'}.", highlight=False)


@contextmanager
def _progress(words: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many units are done, the rate and the time left."""
    columns = (TextColumn(words), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(words, total=total)
        yield lambda done: progress.update(task, completed=done)


def _metrics_table(rows: list[dict[str, object]], names: list[str]) -> Table:
    table = Table(title="What each method learned from this batch", title_justify="left", caption_justify="left")
    table.caption = "bold: best in its row"
    table.add_column("metric", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        cells = [f"[bold]{c['text']}[/]" if c["best"] else str(c["text"]) for c in row["cells"]]  # type: ignore[attr-defined]
        table.add_row(str(row["label"]), *cells)
    return table


def main() -> None:
    """Run the command line; errors made on purpose become one sentence and exit code 2."""
    try:
        app()
    except BitlError as error:
        errors.print(f"bitl: {error}", style="red", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("bitl: interrupted; nothing was left half-written.", highlight=False)
        sys.exit(130)
