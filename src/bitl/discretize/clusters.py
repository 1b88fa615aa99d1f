r"""States found in the data: k-means clusters of standardised measurements.

For a state with many variables, whose bins would multiply into more states than there are data. Columns are centred
and scaled, :math:`z = (x - m) / d`, and the state of a row is the nearest centre, :math:`\arg\min_k \|z - c_k\|`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray, IntArray
from ..errors import DataError
from .scheme import numbers

ROWS = 100_000  # nearest centres are found for this many rows at a time


@dataclass(frozen=True, eq=False)
class Clusters:
    """States that are clusters; centres are sorted by the first column."""

    columns: tuple[str, ...]
    units: tuple[str, ...]
    mean: FloatArray  #: ``[V]``
    spread: FloatArray  #: ``[V]``
    centres: FloatArray  #: ``[K, V]``, standardised

    @property
    def num_states(self) -> int:
        """Number of clusters K."""
        return len(self.centres)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for every cluster: the values at its centre, with units."""
        middle = self.mean + self.centres * self.spread
        return tuple(
            f"cluster {k}: "
            + ", ".join(f"{c} {x:.3g} {u}" for c, x, u in zip(self.columns, row, self.units, strict=True))
            for k, row in enumerate(middle)
        )

    def states(self, table: Any) -> IntArray:
        """Return the nearest cluster of each row ``[n]`` of a table."""
        z = (_matrix(table, self.columns) - self.mean) / self.spread
        found = [
            ((z[i : i + ROWS, None, :] - self.centres) ** 2).sum(axis=2).argmin(axis=1) for i in range(0, len(z), ROWS)
        ]
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def fit_clusters(table: Any, *, columns: Mapping[str, str], num_states: int, seed: int) -> Clusters:
    """Find k-means clusters in a table.

    Parameters
    ----------
    table
        A dict of columns, pandas, polars or Arrow.
    columns
        The columns to use and their units, such as ``{"map": "mmHg"}``.
    num_states
        Number of clusters.
    seed
        Of the first centres.

    Raises
    ------
    DataError
        If a value is missing, a column never varies, or there are fewer distinct rows than clusters.
    """
    cluster = _validate.optional_import("sklearn.cluster", "cluster", "fit_clusters")
    number = _validate.positive_int(num_states, "num_states")
    names = tuple(columns)
    x = _matrix(table, names)
    distinct = len(np.unique(x, axis=0))
    if distinct < number:
        raise DataError(f"The table has {distinct} distinct rows, too few for {number} clusters.")
    mean, spread = x.mean(axis=0), x.std(axis=0)
    still = np.flatnonzero(spread <= 1e-12 * np.maximum(np.abs(mean), 1e-300))
    if still.size:
        raise DataError(f"The column {names[still[0]]!r} has the same value in every row; leave it out.")
    state = int(_validate.seed_sequence(seed).generate_state(1)[0])
    found = cluster.KMeans(number, n_init=4, random_state=state).fit((x - mean) / spread)
    centres = found.cluster_centers_
    return Clusters(names, tuple(columns.values()), mean, spread, centres[np.argsort(centres[:, 0], kind="stable")])


def _matrix(table: Any, columns: Sequence[str]) -> FloatArray:
    if not columns:
        raise DataError("Clusters need at least one column.")
    values = [numbers(table, name) for name in columns]
    for name, column in zip(columns, values, strict=True):
        bad = np.flatnonzero(~np.isfinite(column))
        if bad.size:
            raise DataError(f"The column {name!r} has no value in row {bad[0]}; fill in such values or drop the rows.")
    return np.stack(values, axis=1)
