"""Running a study: compute what is missing, store it as it arrives, then write tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _files
from . import epsilon, joint, sensitivity, synthetic
from .engine import Engine
from .store import Row, Store
from .tables import TIMING, ResultTable, joint_tables, synthetic_tables
from .unit import Unit


@dataclass(frozen=True)
class Study:
    """What there is to compute, and how its rows become tables."""

    name: str
    units: Callable[..., list[Any]]
    compute: Callable[[Any], list[Row]]
    tables: Callable[..., list[ResultTable]]


STUDIES = {
    synthetic.STUDY: Study(synthetic.STUDY, synthetic.units, synthetic.compute, synthetic_tables),
    joint.STUDY: Study(joint.STUDY, joint.units, joint.compute, joint_tables),
    sensitivity.STUDY: Study(sensitivity.STUDY, sensitivity.units, sensitivity.compute, lambda *_: []),
    epsilon.STUDY: Study(epsilon.STUDY, epsilon.units, epsilon.compute, lambda *_: []),
}


def run_units(study: Study, store: Store, units: Sequence[Unit], engine: Engine, on_done: Callable[[int], None]) -> int:
    """Compute the units that the store lacks; return how many that were. ``on_done`` is told how many are stored."""
    missing = store.missing(units)
    stored = len(units) - len(missing)
    on_done(stored)
    results = engine.results(study.compute, missing)
    try:
        for unit, rows in results:
            store.put(unit, rows)
            stored += 1
            on_done(stored)
    finally:
        results.close()  # type: ignore[attr-defined]  # stops the workers, also when interrupted
    return len(missing)


def write_tables(study: Study, rows: Iterable[Row], out: Path) -> list[ResultTable]:
    """Write every table of these rows as Markdown, CSV and LaTeX; return them."""
    rows = list(rows)
    tables = study.tables(rows)
    for table in tables:
        for suffix, text in ((".md", table.markdown()), (".csv", table.csv()), (".tex", table.latex())):
            _files.write_text(out / "tables" / f"{table.name}{suffix}", text)
    for table in study.tables(rows, TIMING):
        _files.write_text(out / "timing" / f"{table.name}.csv", table.csv())
    return tables
