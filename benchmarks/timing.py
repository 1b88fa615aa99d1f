"""Timing side by side: the candidates take turns, so that a noisy machine disturbs all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

console = Console(width=110)


def seconds(function: Callable[[], Any]) -> float:
    """Time one call."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def side_by_side(candidates: Mapping[str, Callable[[], Any]], *, repeats: int) -> dict[str, list[float]]:
    """Run every candidate once to warm up, then in turns; return all times."""
    for function in candidates.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, function in candidates.items():
            times[name].append(seconds(function))
    return times


def median_ratio(slow: list[float], fast: list[float]) -> float:
    """Median over turns of slow / fast."""
    return statistics.median(s / f for s, f in zip(slow, fast, strict=True))


def show(title: str, rows: list[tuple[str, str, str]]) -> None:
    """Print what was measured, the figure and the aim."""
    table = Table(title=title, title_justify="left")
    table.add_column("measured")
    table.add_column("figure", justify="right")
    table.add_column("aim", justify="right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
