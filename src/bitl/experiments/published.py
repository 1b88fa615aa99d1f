"""The 409 numbers of the paper's tables, to set ours beside."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path


@cache
def published_numbers() -> dict[tuple[str | None, ...], tuple[float | None, float | None]]:
    """Return the paper's numbers by (table, environment, task, metric, method)."""
    with (Path(__file__).parent / "published.csv").open(encoding="utf-8") as file:
        return {
            (row["table"], row["environment"], row["task"], row["metric"], row["method"]): (
                float(row["mean"]),
                float(row["sd"]) if row["sd"] else None,
            )
            for row in csv.DictReader(file)
        }
