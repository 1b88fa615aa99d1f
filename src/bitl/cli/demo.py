"""``bitl demo``: every method on one gridworld batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.columns import Columns
from rich.padding import Padding
from rich.table import Table

from .terminal import console


def demo(
    epsilon: Annotated[float, typer.Option(help="How far from the best action the experts stray.")] = 3.0,
    coverage: Annotated[float, typer.Option(help="Share of the states the experts are seen in, in (0, 1].")] = 0.6,
    draws: Annotated[int, typer.Option(help="Posterior draws of each sampler.")] = 1000,
    rounds: Annotated[int, typer.Option(help="Rounds in each of BITL's four runs; more is better.")] = 7000,
    seed: Annotated[int, typer.Option(help="Seed of the batch and of the samplers.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for figures and the report.")] = Path("out"),
) -> None:
    """Fit every method to one gridworld batch and show what each of them learned."""
    from ..experiments import demo as study
    from ..report.grid import terminal_grid

    with console.status("drawing a batch ...") as status:
        result = study.run_demo(
            epsilon=epsilon,
            coverage=coverage,
            draws=draws,
            seed=seed,
            rounds=rounds,
            on_method=lambda name: status.update(f"fitting {name} ..."),
        )
        status.update("writing the report ...")
        command = f"bitl demo --epsilon {epsilon:g} --coverage {coverage:g} --draws {draws}"
        command += f" --rounds {rounds} --seed {seed}"
        written = study.write(result, out, command)
    console.print(study.summary(result), highlight=False)
    console.print(metrics_table(study.table(result), [fit.name for fit in result.fits]))
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


def metrics_table(rows: list[dict[str, object]], names: list[str]) -> Table:
    """Return the demo's metrics for a terminal, the best of each row in bold."""
    table = Table(title="What each method learned from this batch", title_justify="left", caption_justify="left")
    table.caption = "bold: best in its row"
    table.add_column("metric", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        cells = [f"[bold]{c['text']}[/]" if c["best"] else str(c["text"]) for c in row["cells"]]  # type: ignore[attr-defined]
        table.add_row(str(row["label"]), *cells)
    return table
