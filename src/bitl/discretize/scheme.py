r"""From measured values to labelled states: declarative bins.

A :class:`Scheme` lists variables, each with labelled intervals. A row of measurements :math:`(x_1, \dots, x_V)` falls
into bins :math:`(b_1, \dots, b_V)`, and the state is their number in mixed radix, the last variable fastest:

.. math:: s = (\cdots (b_1 n_2 + b_2) n_3 + \cdots) n_V + b_V

The intervals of a variable must cover its limits without gap or overlap; otherwise the scheme is refused, or it says
itself to which neighbour the gap or the overlap belongs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray, IntArray
from ..errors import DataError
from .bins import Bin, Variable

SCHEMES = Path(__file__).parent / "schemes"


@dataclass(frozen=True)
class LinearReward:
    """A reward that is linear in the bin numbers: ``base + sum of per_bin[v] * bin of v``."""

    base: float
    per_bin: Mapping[str, float]


@dataclass(frozen=True)
class Scheme:
    """Variables with bins, together the states of a decision process.

    Examples
    --------
    >>> scheme = Scheme.example("hypotension")
    >>> row = {"pf_ratio": [150], "map": [65], "gcs": [10], "creatinine": [5]}
    >>> scheme.bins(row), scheme.states(row), scheme.num_states
    (array([[1, 1, 0, 2]]), array([20]), 36)
    >>> scheme.labels[20]
    'PaO2/FiO2 100 to 200, MAP below 70, GCS at most 12, creatinine over 4.9'
    """

    variables: tuple[Variable, ...]
    name: str = "states"
    source: str = ""
    rewards: Mapping[str, LinearReward] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", tuple(self.variables))
        names = [v.name for v in self.variables]
        if not names or len(set(names)) < len(names):
            raise DataError(f"A scheme needs variables, each with a name of its own. Got {names} instead.")
        for reward, linear in self.rewards.items():
            unknown = [name for name in linear.per_bin if name not in names]
            if unknown:
                raise DataError(
                    f"The reward {reward!r} speaks of {unknown[0]!r}; the variables are {', '.join(map(repr, names))}."
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of bins of each variable."""
        return tuple(len(v.bins) for v in self.variables)

    @property
    def num_states(self) -> int:
        """Number of states: the product of the numbers of bins."""
        return int(np.prod(self.shape))

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for every state, in words."""
        return tuple(
            ", ".join(v.bins[b].label for v, b in zip(self.variables, row, strict=True))
            for row in self.decode(np.arange(self.num_states))
        )

    def bins(self, table: Any) -> IntArray:
        """Return the bins of each row ``[n, V]`` of a table: a dict of columns, pandas, polars or Arrow."""
        columns = [numbers(table, v.column) for v in self.variables]
        return np.stack([v.bin_numbers(x) for v, x in zip(self.variables, columns, strict=True)], axis=1)

    def states(self, table: Any) -> IntArray:
        """Return the state of each row ``[n]`` of a table."""
        return self.encode(self.bins(table))

    def encode(self, bins: Any) -> IntArray:
        """Return the states ``[...]`` of bin numbers ``[..., V]``."""
        try:
            return np.asarray(np.ravel_multi_index(tuple(np.moveaxis(np.asarray(bins), -1, 0)), self.shape))
        except ValueError:
            raise DataError(f"Bin numbers must lie below {self.shape}. Got {bins!r:.80} instead.") from None

    def decode(self, states: Any) -> IntArray:
        """Return the bin numbers ``[..., V]`` of states ``[...]``."""
        return np.stack(np.unravel_index(np.asarray(states), self.shape), axis=-1)

    def reward(self, name: str) -> FloatArray:
        """Return the reward of every state ``[S]``."""
        if name not in self.rewards:
            known = ", ".join(map(repr, self.rewards)) or "none"
            raise DataError(f"The scheme {self.name!r} has no reward {name!r}; it has {known}.")
        linear = self.rewards[name]
        weight = np.array([linear.per_bin.get(v.name, 0.0) for v in self.variables])
        return np.asarray(linear.base + self.decode(np.arange(self.num_states)) @ weight, dtype=np.float64)

    @classmethod
    def from_toml(cls, source: Path | str) -> Scheme:
        """Read a scheme from a TOML file, or from TOML text if it has several lines."""
        where = "the scheme" if isinstance(source, str) and "\n" in source else str(source)
        try:
            text = source if isinstance(source, str) and "\n" in source else Path(source).read_text(encoding="utf-8")
            return cls.from_dict(tomllib.loads(text))
        except OSError as error:
            raise DataError(f"Cannot read the scheme {source}: {error.strerror}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"Cannot read {where}: {error}.") from error

    @classmethod
    def example(cls, name: str = "hypotension") -> Scheme:
        """Return a scheme that ships with the package."""
        known = sorted(path.stem for path in SCHEMES.glob("*.toml"))
        _validate.one_of(name, "name", known)
        return cls.from_toml(SCHEMES / f"{name}.toml")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scheme:
        """Make a scheme from what a TOML file holds."""
        _known(data, ("name", "source", "variable", "reward"), "a scheme")
        variables = [_variable(entry) for entry in data.get("variable", ())]
        rewards = {}
        for name, entry in data.get("reward", {}).items():
            _known(entry, ("base", "per_bin"), f"the reward {name!r}")
            per_bin = {key: _validate.real(value, key) for key, value in entry.get("per_bin", {}).items()}
            rewards[name] = LinearReward(_validate.real(entry.get("base", 0.0), "base"), per_bin)
        return cls(tuple(variables), str(data.get("name", "states")), str(data.get("source", "")), rewards)

    def with_normal(self, **values: float) -> Scheme:
        """Return the same scheme with other normal values."""
        known = {v.name for v in self.variables}
        if not set(values) <= known:
            raise DataError(f"There is no variable {min(set(values) - known)!r} in the scheme {self.name!r}.")
        new = tuple(replace(v, normal=values.get(v.name, v.normal)) for v in self.variables)
        return replace(self, variables=new)

    def to_dict(self) -> dict[str, Any]:
        """Return the scheme as plain data; ``from_dict`` reads it back."""
        variables = []
        for v in self.variables:
            entry: dict[str, Any] = {"name": v.name, "column": v.column, "label": v.label, "unit": v.unit}
            entry |= {"limits": str(v.limits), "gaps": v.gaps, "overlaps": v.overlaps}
            entry |= {} if v.typical is None else {"typical": list(v.typical)}
            entry |= {} if v.normal is None else {"normal": v.normal}
            entry["bins"] = [{"label": b.label, "interval": str(b.interval)} for b in v.bins]
            variables.append(entry)
        rewards = {name: {"base": r.base, "per_bin": dict(r.per_bin)} for name, r in self.rewards.items()}
        return {"name": self.name, "source": self.source, "variable": variables, "reward": rewards}


def numbers(table: Any, column: str) -> FloatArray:
    """Return a column of any table as floats ``[n]``, missing values as NaN."""
    names: Sequence[Any] = getattr(table, "column_names", None) or list(getattr(table, "columns", table))
    if column not in names:
        raise DataError(f"There is no column {column!r}; the table has {', '.join(map(repr, names))}.")
    values = table[column]
    try:
        if hasattr(values, "isna") and hasattr(values, "to_numpy"):  # pandas, whose own missing value is no number
            return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"The column {column!r} must hold numbers.") from None


def _known(entry: Any, keys: Sequence[str], what: str) -> None:
    if not isinstance(entry, Mapping):
        raise DataError(f"{what[0].upper()}{what[1:]} must be a table of settings. Got {entry!r:.60} instead.")
    unknown = [key for key in entry if key not in keys]
    if unknown:
        raise DataError(f"{what[0].upper()}{what[1:]} has no setting {unknown[0]!r}; it has {', '.join(keys)}.")


def _variable(entry: Any) -> Variable:
    keys = ("name", "bins", "unit", "column", "label", "limits", "typical", "normal", "gaps", "overlaps")
    _known(entry, keys, "a variable")
    for key in ("name", "bins", "unit"):
        if key not in entry:
            raise DataError(f"The variable {entry.get('name', '?')!r} needs {key!r}.")
    for one in entry["bins"]:
        _known(one, ("label", "interval"), f"a bin of {entry['name']!r}")
    bins = tuple(Bin(str(one.get("label", one.get("interval"))), one.get("interval")) for one in entry["bins"])
    return Variable(**{**entry, "bins": bins})
