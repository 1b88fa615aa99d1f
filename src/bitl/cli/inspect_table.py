"""``bitl inspect``: what was understood of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table as Grid

from ..errors import DataError
from .options import DataOptions, OutputOptions, command_line, expand, say
from .terminal import console

SHOWN = 25


@expand
def inspect(data: DataOptions, output: OutputOptions) -> None:
    """What is in the table: states, actions, episodes, coverage, valid actions, rows refused with their lines.

    The exit code is 2 if the other commands would refuse the table as it is.
    """
    from ..analysis.case import describe, read_data
    from ..analysis.folder import check_writable, versions, write_json

    if output.out is not None:
        check_writable(output.out)
    table = read_data(data.data, data.columns())
    visits = np.zeros((table.num_states, table.num_actions), dtype=np.int64)
    np.add.at(visits, (table.state, table.action), 1)
    coverage = [
        {
            "state": table.labels.state(s),
            "decisions": int(visits[s].sum()),
            "actions": {table.labels.action(int(a)): int(visits[s, a]) for a in np.flatnonzero(visits[s])},
        }
        for s in range(table.num_states)
    ]
    content = {
        "command": command_line(),
        "versions": versions(),
        "data": describe(table),
        "action_labels": list(table.labels.actions or ()),
        "coverage": coverage,
    }
    if output.out is not None:
        write_json(output.out / "inspect.json", content)
    output.show(content, lambda: _show(table, coverage))
    open_problems = [
        text
        for text, settled in zip(
            table.problems(),
            ([data.drop_refused] if table.refused else []) + [data.keep_rare] * len(table.rare_lines),
            strict=True,
        )
        if not settled
    ]
    if open_problems:
        raise DataError(" ".join(open_problems))
    if not len(table):
        raise DataError(f"{table.source} has no usable transition; there is nothing to learn from.")


def _show(table: Any, coverage: list[dict[str, Any]]) -> None:
    say(str(table).splitlines()[0])
    say("Columns: " + ", ".join(f"{role.replace('_', ' ')} = {name}" for role, name in table.columns.items()) + ".")
    say("Actions: " + ", ".join(table.labels.actions or ()) + ".")
    visited = sum(row["decisions"] > 0 for row in coverage)
    say(f"Coverage: decisions were recorded in {visited} of {table.num_states} states.")
    grid = Grid(title="Decisions and valid actions per state (how often)", title_justify="left")
    grid.add_column("state")
    grid.add_column("decisions", justify="right")
    grid.add_column("valid actions")
    for row in coverage[:SHOWN]:
        actions = ", ".join(f"{name} ({number})" for name, number in row["actions"].items())
        grid.add_row(row["state"], f"{row['decisions']:,}", actions or "none seen")
    if len(coverage) > SHOWN:
        grid.caption = f"and {len(coverage) - SHOWN} more states; --json lists all"
    console.print(grid, markup=False)
    for refusal in table.refused:
        say(f"Refused: {refusal.words(table.unit)}.")
