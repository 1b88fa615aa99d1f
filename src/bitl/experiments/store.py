"""A results store that survives anything: one small Parquet file per finished unit of work.

A unit's rows are written to a temporary name and moved into place, so a unit is either there in full or not at all, and
a run that was killed at any moment goes on where it stopped. The folder's name carries a fingerprint of the settings
and of the code that computes, so results of different settings or code never mix.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .. import _files, _validate
from .._version import __version__
from ..errors import DataError

COLUMNS = ("experiment", "level", "world", "dataset", "coverage", "method", "metric", "value")
NOT_COMPUTING = ("cli", "report", "icu")  # parts of the package that cannot change a result

Row = tuple[str, str, str, int, float, str, str, float]


def code_fingerprint() -> str:
    """Return a hash of the package's computing sources and version."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in NOT_COMPUTING:
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Store:
    """The results of one study with one set of settings, in ``folder/<study>-<fingerprint>``."""

    def __init__(self, folder: Path, study: str, settings: Mapping[str, Any]) -> None:
        self.settings = {"study": study, "code": code_fingerprint(), **settings}
        text = json.dumps(self.settings, sort_keys=True, indent=1)
        fingerprint = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.path = folder / f"{study}-{fingerprint}"
        _files.write_text(self.path / "settings.json", text + "\n")

    def done(self) -> set[str]:
        """Return the keys of the finished units."""
        return {path.stem for path in (self.path / "units").glob("*.parquet") if not path.name.startswith(".")}

    def put(self, key: str, rows: Iterable[Row]) -> None:
        """Store a finished unit."""
        pyarrow = _validate.optional_import("pyarrow", "study", "The results store")
        parquet = _validate.optional_import("pyarrow.parquet", "study", "The results store")
        columns = list(zip(*rows, strict=True))
        if not columns:
            raise DataError(f"The unit {key} has no results to store.")
        table = pyarrow.table(dict(zip(COLUMNS, map(list, columns), strict=True)))
        with _files.replacing(self.path / "units" / f"{key}.parquet") as temporary:
            parquet.write_table(table, temporary)

    def rows(self, keys: Iterable[str]) -> list[Row]:
        """Return all rows of the given units, in an order that does not depend on when they were finished."""
        parquet = _validate.optional_import("pyarrow.parquet", "study", "The results store")
        rows: list[Row] = []
        for key in sorted(keys):
            path = self.path / "units" / f"{key}.parquet"
            try:
                table = parquet.read_table(path)
            except Exception as error:  # whatever the reader says of a damaged file
                raise DataError(f"Cannot read {path}: {error}; delete it and run again.") from error
            rows += list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))
        return rows
