"""A results store that survives anything: one small Parquet file per finished unit of work.

A unit's rows are written to a temporary name and moved into place, so a unit is either there in full or not at all, and
a run that was killed at any moment goes on where it stopped. Units lie in folders, one per method, settings and code
that can change its results (:mod:`~bitl.experiments.fingerprint`), so results of different settings or code never mix;
what is inside a folder is written in its ``settings.json``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from .. import _files, _validate
from ..errors import DataError

COLUMNS = ("experiment", "level", "world", "dataset", "coverage", "method", "metric", "value")

Row = tuple[str, str, str, int, float, str, str, float]


class StoredUnit(Protocol):
    """What the store asks of a unit of work."""

    @property
    def key(self) -> str:
        """A name that is also a file name, unique within method and settings."""
        ...

    @property
    def method(self) -> str:
        """The method's name."""
        ...

    def settings(self) -> Mapping[str, Any]:
        """Everything else that its results depend on, the code's fingerprint included."""
        ...


class Store:
    """The results of one study, in ``folder/<study>/<method>-<fingerprint>/<unit>.parquet``."""

    def __init__(self, folder: Path, study: str) -> None:
        self.path = folder / study
        self._folders: dict[tuple[str, str], Path] = {}

    def path_of(self, unit: StoredUnit) -> Path:
        """Return where a unit's results are, or will be."""
        text = json.dumps({"method": unit.method, **unit.settings()}, sort_keys=True, indent=1) + "\n"
        known = unit.method, text
        if known not in self._folders:
            name = re.sub(r"[^A-Za-z0-9]+", "-", unit.method).strip("-").lower()
            folder = self.path / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
            _files.write_text(folder / "settings.json", text)
            self._folders[known] = folder
        return self._folders[known] / f"{unit.key}.parquet"

    def missing(self, units: Iterable[StoredUnit]) -> list[Any]:
        """Return the units that have no results yet, in their order."""
        there: dict[Path, set[str]] = {}
        found = []
        for unit in units:
            path = self.path_of(unit)
            if path.parent not in there:
                there[path.parent] = {entry.name for entry in path.parent.iterdir()}
            if path.name not in there[path.parent]:
                found.append(unit)
        return found

    def put(self, unit: StoredUnit, rows: Iterable[Row]) -> None:
        """Store a finished unit."""
        pyarrow = _validate.optional_import("pyarrow", "study", "The results store")
        parquet = _validate.optional_import("pyarrow.parquet", "study", "The results store")
        columns = list(zip(*rows, strict=True))
        if not columns:
            raise DataError(f"The unit {unit.key} of {unit.method} has no results to store.")
        table = pyarrow.table(dict(zip(COLUMNS, map(list, columns), strict=True)))
        with _files.replacing(self.path_of(unit)) as temporary:
            parquet.write_table(table, temporary)

    def rows(self, units: Iterable[StoredUnit]) -> list[Row]:
        """Return all rows of the given units, in an order that does not depend on when they were finished."""
        parquet = _validate.optional_import("pyarrow.parquet", "study", "The results store")
        rows: list[Row] = []
        for path in sorted({self.path_of(unit) for unit in units}, key=lambda path: (path.name, path)):
            try:
                table = parquet.ParquetFile(path).read()
                rows += list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))
            except Exception as error:  # whatever the reader says of a damaged file
                raise DataError(f"Cannot read {path}: {error}; delete it and run again.") from error
        return rows
