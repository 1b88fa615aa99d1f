"""``bitl reproduce``: the paper's studies, ours beside the published numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .terminal import console, progress


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
    from .. import _validate
    from ..experiments import joint
    from ..experiments.engine import LocalEngine
    from ..experiments.runner import run_units, write_tables
    from ..experiments.store import Store
    from ..experiments.synthetic import LEVELS, How, Size, units

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
    with progress(f"{what}: units", len(todo)) as advance:
        run_units(store, todo, LocalEngine(workers), advance)
    for table in write_tables(store, todo, out):
        console.print(table.rich())
    console.print(f"Results in {store.path}, tables in {out / 'tables'}.", highlight=False)
