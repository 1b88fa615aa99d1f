"""Labelled intervals of measured variables, without gap or overlap."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray, IntArray
from ..errors import DataError

NEIGHBOURS = ("refuse", "lower", "upper")
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf)"
_PAIR = re.compile(rf"([\[(])\s*({_NUMBER})\s*,\s*({_NUMBER})\s*([\])])")
_SIDE = re.compile(rf"(<=|>=|<|>)\s*({_NUMBER})")


@dataclass(frozen=True)
class Interval:
    """An interval of numbers; ``Interval.parse`` reads ``"[100, 200)"``, ``">= 200"`` and ``"< 100"``."""

    low: float = -np.inf
    high: float = np.inf
    low_in: bool = True
    high_in: bool = False

    @classmethod
    def parse(cls, text: Any) -> Interval:
        """Read an interval.

        Examples
        --------
        >>> str(Interval.parse("[100, 200)")), 200 in Interval.parse(">= 200")
        ('[100, 200)', True)
        """
        pair = _PAIR.fullmatch(str(text).strip())
        side = _SIDE.fullmatch(str(text).strip())
        if pair:
            found = cls(float(pair[2]), float(pair[3]), pair[1] == "[", pair[4] == "]")
        elif side and side[1][0] == "<":
            found = cls(-np.inf, float(side[2]), False, side[1] == "<=")
        elif side:
            found = cls(float(side[2]), np.inf, side[1] == ">=", False)
        else:
            raise DataError(f"An interval reads like '[100, 200)', '>= 200' or '< 100'. Got {text!r} instead.")
        if found.empty:
            raise DataError(f"The interval {str(text)!r} is empty.")
        return found

    @property
    def empty(self) -> bool:
        """True if no number lies inside."""
        return self.low > self.high or (self.low == self.high and not (self.low_in and self.high_in))

    def __contains__(self, value: float) -> bool:
        return bool(self.covers(np.array([value]))[0])

    def covers(self, values: FloatArray) -> Any:
        """Return which values lie inside."""
        above = values >= self.low if self.low_in else values > self.low
        below = values <= self.high if self.high_in else values < self.high
        return above & below

    def __str__(self) -> str:
        return f"{'[' if self.low_in else '('}{_exact(self.low)}, {_exact(self.high)}{']' if self.high_in else ')'}"


def _exact(number: float) -> str:
    """Write a number as short as it can be read back."""
    short = f"{number:g}"
    return short if float(short) == number else repr(float(number))


@dataclass(frozen=True)
class Bin:
    """A labelled interval."""

    label: str
    interval: Interval

    def __post_init__(self) -> None:
        given: Any = self.interval  # text is read here, once
        if not isinstance(given, Interval):
            object.__setattr__(self, "interval", Interval.parse(given))


@dataclass(frozen=True)
class Variable:
    """A measured variable and its bins, in the order of their numbers.

    Parameters
    ----------
    name
        Short name, as in rewards.
    bins
        Labelled intervals; bin numbers follow their order, whichever way the values run.
    unit
        The unit of the values; required, so that nobody has to guess.
    column
        Column of the table, by default the name.
    label
        Name in words, by default the name.
    limits
        Values outside are refused; the bins must cover these limits.
    typical
        Lowest and highest median that a column in this unit may have; catches other units.
    normal
        Value to assume where nothing was measured; None if there is none.
    gaps, overlaps
        ``"refuse"``, or the neighbour (``"lower"`` or ``"upper"`` values) that a gap or an overlap is given to.
    """

    name: str
    bins: tuple[Bin, ...]
    unit: str
    column: str = ""
    label: str = ""
    limits: Interval = field(default_factory=Interval)
    typical: tuple[float, float] | None = None
    normal: float | None = None
    gaps: str = "refuse"
    overlaps: str = "refuse"
    edges: tuple[Interval, ...] = field(default=(), init=False, repr=False)  #: the intervals without gap or overlap

    def __post_init__(self) -> None:
        put = object.__setattr__
        given: Any = self.limits
        if not isinstance(given, Interval):
            put(self, "limits", Interval.parse(given))
        for key in ("gaps", "overlaps"):
            _validate.one_of(getattr(self, key), f"{key} of {self.name}", NEIGHBOURS)
        put(self, "column", self.column or self.name)
        put(self, "label", self.label or self.name)
        put(self, "bins", tuple(self.bins))
        if not self.bins:
            raise DataError(f"The variable {self.name!r} has no bins.")
        if not self.unit:
            raise DataError(f"The variable {self.name!r} needs a unit, such as 'mmHg', or '1' if it has none.")
        if self.typical is not None:
            put(self, "typical", tuple(_validate.finite(self.typical, "typical", [(2,)]).tolist()))
        put(self, "edges", _resolve(self))
        if self.normal is not None and self.normal not in self.limits:
            raise DataError(f"The normal value {self.normal:g} of {self.name!r} lies outside its limits {self.limits}.")

    def bin_numbers(self, values: Any) -> IntArray:
        """Return the bin of each value ``[n]``; a value that is missing or outside the limits is refused."""
        array = np.asarray(values, dtype=np.float64)
        bad = np.flatnonzero(np.isnan(array))
        if bad.size:
            raise DataError(
                f"The column {self.column!r} has no value in row {bad[0]}; fill in such values or drop the rows."
            )
        bad = np.flatnonzero(~self.limits.covers(array))
        if bad.size:
            raise DataError(
                f"The column {self.column!r} has {array[bad[0]]:g} in row {bad[0]}, outside {self.limits} {self.unit}; "
                "drop such values or convert their unit."
            )
        self.check_unit(float(np.median(array)) if array.size else None)
        found = np.full(array.shape, -1, dtype=np.int64)
        for number, interval in enumerate(self.edges):
            found[interval.covers(array)] = number
        return found

    def check_unit(self, median: float | None) -> None:
        """Raise if the median of a column cannot be in this variable's unit."""
        if median is None or self.typical is None or self.typical[0] <= median <= self.typical[1]:
            return
        raise DataError(
            f"The median of {self.label} is {median:g}; in {self.unit} it should lie between {self.typical[0]:g} and "
            f"{self.typical[1]:g}, so the values seem to be in another unit: convert them to {self.unit}."
        )


def _resolve(variable: Variable) -> tuple[Interval, ...]:
    """Return the bins' intervals after giving gaps and overlaps to a neighbour, or raise."""
    order = sorted(range(len(variable.bins)), key=lambda i: (variable.bins[i].interval.low, variable.bins[i].label))
    edges = [variable.bins[i].interval for i in order]
    _cover_the_ends(variable, edges)
    for k in range(len(edges) - 1):
        left, right = edges[k], edges[k + 1]
        if left.high == right.low and left.high_in != right.low_in:
            continue
        overlap = left.high > right.low or (left.high == right.low and left.high_in)
        rule, kind = (variable.overlaps, "overlap") if overlap else (variable.gaps, "gap")
        if rule == "refuse":
            between = (
                Interval(right.low, left.high, right.low_in, left.high_in)
                if overlap
                else Interval(left.high, right.low, not left.high_in, not right.low_in)
            )
            raise DataError(
                f"The bins of {variable.name!r} have the {kind} {between} between {str(left)!r} and {str(right)!r}; "
                f"change them, or give it to a neighbour with {kind}s = 'lower' or 'upper'."
            )
        # what stays: the end of the lower bin, or the beginning of the upper one
        keeps_lower = (rule == "lower") == overlap
        cut, low_in = (left.high, not left.high_in) if keeps_lower else (right.low, right.low_in)
        edges[k] = replace(left, high=cut, high_in=not low_in)
        edges[k + 1] = replace(right, low=cut, low_in=low_in)
        if edges[k + 1].empty or edges[k].empty:
            raise DataError(f"The bins {str(left)!r} and {str(right)!r} of {variable.name!r} contain each other.")
    _cover_the_ends(variable, edges)  # a bin that reached to the end may have been cut
    resolved: list[Interval] = [Interval()] * len(edges)
    for k, i in enumerate(order):
        resolved[i] = edges[k]
    return tuple(resolved)


def _cover_the_ends(variable: Variable, edges: list[Interval]) -> None:
    low, high, limits = edges[0], max(edges, key=lambda e: (e.high, e.high_in)), variable.limits
    bottom = low.low < limits.low or (low.low == limits.low and (low.low_in or not limits.low_in or np.isinf(low.low)))
    top = high.high > limits.high or (
        high.high == limits.high and (high.high_in or not limits.high_in or np.isinf(high.high))
    )
    if not (bottom and top):
        raise DataError(
            f"The bins of {variable.name!r} reach from {low.low:g} to {high.high:g}, but its limits are {limits}; "
            "add bins, or state narrower limits."
        )
