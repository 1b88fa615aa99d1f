"""From columns of labels to ids: Arrow encodes the rows, Python looks at the distinct labels only."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._types import FloatArray, IntArray
from ..errors import DataError
from .sources import arrow

MISSING = "without {}"
NEGATIVE = "with a negative {}"
FRACTION = "with a {} that is not a whole number"
WHOLE = re.compile(r"[+-]?\d{1,300}")  # within the range of floats, so that it can be judged like them
DAY = re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{2,4}\b")  # day or month first: nobody knows
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(eq=False)
class Encoded:
    """One column: ``values[code]`` for every row; code -1 where there is no value."""

    codes: np.ndarray[Any, Any]  #: int32, to save memory
    dictionary: Any  #: the distinct values, an Arrow array

    @cached_property
    def values(self) -> list[Any]:
        """The distinct values as Python objects."""
        found: list[Any] = self.dictionary.to_pylist()
        return found


class Gatherer:
    """Collects the batches of one column, dictionary-encoded."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._chunks: list[Any] = []

    def add(self, chunk: Any) -> None:
        """Take in one batch."""
        pa = arrow()
        kind = chunk.type
        if pa.types.is_dictionary(kind):
            chunk = chunk.dictionary_decode()
        if pa.types.is_nested(kind):
            raise DataError(f"The column {self.name!r} holds lists or records; a cell must be one label or number.")
        if str(chunk.type) in ("string_view", "large_string"):
            chunk = chunk.cast(pa.string())
        if pa.types.is_floating(chunk.type):  # NaN is no value
            chunk = arrow(".compute").if_else(arrow(".compute").is_nan(chunk), None, chunk)
        self._chunks.append(chunk.dictionary_encode())

    def finish(self) -> Encoded:
        """Return the codes of all batches in one dictionary."""
        if not self._chunks:
            return Encoded(np.empty(0, np.int32), arrow().array([], arrow().string()))
        whole = arrow().chunked_array(self._chunks).unify_dictionaries()
        codes = np.empty(len(whole), dtype=np.int32)
        at = 0
        for chunk in whole.chunks:
            part = chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            codes[at : at + len(part)] = part
            at += len(part)
        dictionary = max((chunk.dictionary for chunk in whole.chunks), key=len)
        if arrow().types.is_string(dictionary.type):  # spaces are no value, whatever the column
            compute = arrow(".compute")
            empty = compute.equal(compute.utf8_trim_whitespace(dictionary), "").to_numpy(zero_copy_only=False)
            codes[np.append(empty, False)[codes]] = -1
        return Encoded(codes, dictionary)


def clean(values: Iterable[Any], role: str, *, numeric: bool) -> tuple[list[str | None], list[str | None]]:
    """Return for each distinct value its label, or why rows with it are refused."""
    labels: list[str | None] = []
    reasons: list[str | None] = []
    for value in values:
        label: str | None = None
        reason: str | None = None
        if isinstance(value, str) and not value.strip():
            reason = MISSING.format(f"a{'n' if role[0] in 'aeio' else ''} {role}")
        elif numeric:
            number = _number(value)
            if not math.isfinite(number) or number != math.floor(number):
                reason = FRACTION.format(role)
            elif number < 0:
                reason = NEGATIVE.format(role)
            else:
                label = str(int(number))
        else:
            label = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            label = label.strip()
            if not label:
                label, reason = None, MISSING.format(f"a{'n' if role[0] in 'aeio' else ''} {role}")
        labels.append(label)
        reasons.append(reason)
    return labels, reasons


def _number(value: Any) -> int | float:
    """Return a number or text as a number, whole ones to the last digit."""
    if isinstance(value, str) and WHOLE.fullmatch(value.strip()):
        return int(value)
    return value if isinstance(value, int) else float(value)


def looks_numeric(values: Sequence[Any]) -> bool:
    """Return whether every value is a number, or text that reads as one; blank cells do not count."""
    filled = [v for v in values if not (isinstance(v, str) and not v.strip())]
    return bool(filled) and all(
        (isinstance(v, int | float) and not isinstance(v, bool))
        or (isinstance(v, str) and NUMBER.fullmatch(v.strip()) is not None)
        for v in filled
    )


def natural_key(label: str) -> tuple[tuple[int, int, str], ...]:
    """Sort ``s2`` before ``s10``."""
    parts = re.split(r"(\d+)", label)
    return tuple((0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts if part)


def lookup(labels: Sequence[str | None], order: dict[str, int]) -> IntArray:
    """Return the id of each label, -1 where there is none; one more entry at the end serves code -1."""
    return np.array([-1 if label is None else order[label] for label in labels] + [-1], dtype=np.int32)


def numbers(column: Encoded) -> FloatArray | None:
    """Return the column as numbers, NaN where a cell is empty or not one; None if no cell is a number."""
    pa, compute = arrow(), arrow(".compute")
    values = column.dictionary
    if pa.types.is_string(values.type):
        plain = compute.utf8_trim_whitespace(values)
        fits = compute.match_substring_regex(plain, f"^{NUMBER.pattern}$")
        if not compute.any(fits).as_py():
            return None
        values = compute.if_else(fits, plain, None)
    elif not (
        pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_decimal(values.type)
    ):
        return None
    table = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.append(table, np.nan)[column.codes]


def steps(column: Encoded) -> tuple[FloatArray, bool]:
    """Return a number per row by which rows are ordered (NaN: none), and whether it counts steps one by one."""
    pa = arrow()
    found = numbers(column)
    if found is not None:
        known = found[~np.isnan(found)]
        return found, bool(np.all(np.floor(known) == known))
    values = column.dictionary
    if not pa.types.is_temporal(values.type):
        try:
            values = values.cast(pa.timestamp("us"))
        except pa.ArrowException:  # some other text: it is ordered as text, numbers in it as numbers
            day = next((str(v) for v in column.values if DAY.match(str(v).strip())), None)
            if day is not None:  # as text, January of one year comes before December of the last
                raise DataError(
                    f"The steps hold dates such as {day!r}, whose order is not certain; write them as YYYY-MM-DD, or "
                    "name another column with --step-column."
                ) from None
            ranks = {value: float(i) for i, value in enumerate(sorted(map(str, column.values), key=natural_key))}
            return np.array([ranks[str(v)] for v in column.values] + [np.nan])[column.codes], False
    table = values.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float64)
    return np.append(table, np.nan)[column.codes], False
