"""Running a study: compute what is missing, store it as it arrives, then write tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from .. import _files
from .engine import Engine
from .store import Store
from .synthetic import Unit, compute
from .tables import TIMING, ResultTable, synthetic_tables


def run_units(store: Store, units: Sequence[Unit], engine: Engine, on_done: Callable[[int], None]) -> int:
    """Compute the units that the store lacks; return how many that were. ``on_done`` is told how many are stored."""
    done = store.done()
    missing = [unit for unit in units if unit.key not in done]
    stored = len(units) - len(missing)
    on_done(stored)
    results = engine.results(compute, missing)
    try:
        for unit, rows in results:
            store.put(unit.key, rows)
            stored += 1
            on_done(stored)
    finally:
        results.close()  # type: ignore[attr-defined]  # stops the workers, also when interrupted
    return len(missing)


def write_tables(store: Store, units: Sequence[Unit], out: Path) -> list[ResultTable]:
    """Write every table of these units as Markdown, CSV and LaTeX; return them."""
    rows = store.rows(unit.key for unit in units)
    tables = synthetic_tables(rows)
    for table in tables:
        for suffix, text in ((".md", table.markdown()), (".csv", table.csv()), (".tex", table.latex())):
            _files.write_text(out / "tables" / f"{table.name}{suffix}", text)
    for table in synthetic_tables(rows, TIMING):
        _files.write_text(out / "timing" / f"{table.name}.csv", table.csv())
    return tables
