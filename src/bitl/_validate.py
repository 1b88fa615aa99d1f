"""Checks shared by the nouns, each done once where a noun is made.

Messages follow one pattern: "The 'x' parameter must be ... Got ... instead."
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from types import ModuleType
from typing import Any

import numpy as np

from ._types import BoolArray, FloatArray, IntArray
from .errors import DataError, MissingExtraError

ROW_SUM_TOLERANCE = 1e-8


def positive_int(value: Any, name: str) -> int:
    """Return ``value`` as an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise DataError(f"The '{name}' parameter must be a whole number of at least 1. Got {value!r} instead.")
    return int(value)


def real(value: Any, name: str, *, low: float = -np.inf, high: float = np.inf, ends: str = "[]") -> float:
    """Return ``value`` as a finite float inside the interval; ``ends`` says which ends belong to it."""
    ok = not isinstance(value, bool) and isinstance(value, Real) and bool(np.isfinite(float(value)))
    if ok:
        x = float(value)
        above = x >= low if ends[0] == "[" else x > low
        below = x <= high if ends[1] == "]" else x < high
        ok = above and below
    if not ok:
        left = ends[0] if np.isfinite(low) else "("
        right = ends[1] if np.isfinite(high) else ")"
        raise DataError(
            f"The '{name}' parameter must be a number in {left}{low:g}, {high:g}{right}. Got {value!r} instead."
        )
    return float(value)


def one_of(value: Any, name: str, allowed: Sequence[str]) -> str:
    """Return ``value`` if it is one of the ``allowed`` words."""
    if value not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise DataError(f"The '{name}' parameter must be one of {words}. Got {value!r} instead.")
    return str(value)


def as_array(values: Any, name: str) -> np.ndarray[Any, Any]:
    """Return ``values`` as an array; lists of unequal length are refused."""
    try:
        return np.asarray(values)
    except ValueError:
        raise DataError(f"The '{name}' parameter must be a regular array. Got lists of unequal length.") from None


def ids(values: Any, name: str, *, size: int | None = None, row: str = "row") -> IntArray:
    """Return a one-dimensional array of ids in ``0 .. size - 1``; the message names the first offending row."""
    array = as_array(values, name)
    if array.ndim != 1:
        raise DataError(f"The '{name}' ids must be one-dimensional. Got an array of shape {array.shape} instead.")
    if array.dtype.kind not in "iuf":
        raise DataError(
            f"The '{name}' ids must be integers. Got values of type {array.dtype} instead; "
            "for labels, use Transitions.from_dataframe."
        )
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            bad = np.flatnonzero(~np.isfinite(array) | (array != np.floor(array)))
        if bad.size:
            raise DataError(f"The '{name}' ids must be whole numbers. Got {array[bad[0]]} in {row} {bad[0]} instead.")
    too_big = array >= np.iinfo(np.int64).max if size is None else array >= size
    bad = np.flatnonzero((array < 0) | too_big)
    if bad.size:
        limit = "0 or more" if size is None else f"from 0 to {size - 1}"
        raise DataError(f"The '{name}' ids must be {limit}. Got {int(array[bad[0]])} in {row} {bad[0]} instead.")
    return _frozen(array.astype(np.int64))


def finite(values: Any, name: str, shapes: Sequence[tuple[int | None, ...]] | None = None) -> FloatArray:
    """Return a float array without NaN or infinity and, where given, of one of the ``shapes``."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"The '{name}' parameter must be an array of numbers. Got {values!r:.80} instead.") from None
    if shapes is not None and not any(_fits(array.shape, shape) for shape in shapes):
        wanted = " or ".join(_shape_words(shape) for shape in shapes)
        raise DataError(f"The '{name}' parameter must have shape {wanted}. Got shape {array.shape} instead.")
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        at = tuple(int(i) for i in bad[0])
        raise DataError(f"The '{name}' parameter must be finite. Got {array[at]} at index {list(at)} instead.")
    return _frozen(array)


def mask(values: Any, name: str, shape: tuple[int | None, ...]) -> BoolArray:
    """Return a boolean array of the given shape."""
    array = as_array(values, name).copy()
    if array.dtype != np.bool_:
        raise DataError(f"The '{name}' parameter must be an array of bool. Got type {array.dtype} instead.")
    if not _fits(array.shape, shape):
        raise DataError(
            f"The '{name}' parameter must have shape {_shape_words(shape)}. Got shape {array.shape} instead."
        )
    return _frozen(array)


def distribution(values: Any, name: str, size: int) -> FloatArray:
    """Return a probability vector over ``size`` outcomes."""
    array = finite(values, name, [(size,)])
    if array.min() < 0 or abs(array.sum() - 1) > ROW_SUM_TOLERANCE:
        raise DataError(
            f"The '{name}' parameter must be probabilities that sum to 1. "
            f"Got minimum {array.min():g} and sum {array.sum():.12g} instead."
        )
    return array


def model_shape(T: Any) -> FloatArray:
    """Return ``T`` as contiguous floats ``[S, A, S]`` or ``[draw, S, A, S]``; the rows are not looked at."""
    array = as_array(T, "T")
    if array.dtype.kind not in "fiu":
        raise DataError(f"The model T must be an array of numbers. Got type {array.dtype} instead.")
    array = np.ascontiguousarray(array, dtype=np.float64)
    if array.ndim not in (3, 4) or array.shape[-1] != array.shape[-3] or 0 in array.shape:
        raise DataError(f"The model T must have shape [S, A, S] or [draw, S, A, S]. Got shape {array.shape} instead.")
    return array


def model(T: Any) -> FloatArray:
    """Return transition probabilities ``[S, A, S]`` or ``[draw, S, A, S]`` after checking every row."""
    from ._kernels import ROW_SUM_TOLERANCE, first_bad_row

    array = model_shape(T)
    rows = array.reshape(-1, array.shape[-1])
    bad = first_bad_row(rows, ROW_SUM_TOLERANCE)
    if bad >= 0:
        at = np.unravel_index(bad, array.shape[:-1])
        where = f"state {at[-2]}, action {at[-1]}" + (f", draw {at[0]}" if array.ndim == 4 and len(array) > 1 else "")
        raise DataError(
            "The rows of T must be non-negative and sum to 1. "
            f"Got minimum {rows[bad].min():g} and sum {rows[bad].sum():.12g} at {where} instead."
        )
    return array


def workers(value: Any) -> int:
    """Return the number of threads to use: what was asked for, or BITL_WORKERS, or the cores this process may use."""
    if value is not None:
        return positive_int(value, "workers")
    told = os.environ.get("BITL_WORKERS", "")
    if told.isdigit() and int(told) > 0:
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def seed_sequence(seed: Any) -> np.random.SeedSequence:
    """Return the root of all randomness of one call."""
    if isinstance(seed, np.random.SeedSequence):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise DataError(f"The 'seed' parameter must be a whole number of at least 0. Got {seed!r} instead.")
    return np.random.SeedSequence(int(seed))


def generator(rng: Any) -> np.random.Generator:
    """Return ``rng`` if it is a Generator: randomness is passed in, never found."""
    if not isinstance(rng, np.random.Generator):
        raise DataError(f"The 'rng' parameter must be a numpy.random.Generator. Got {type(rng).__name__} instead.")
    return rng


def optional_import(module: str, name: str, purpose: str) -> ModuleType:
    """Import an optional dependency late, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs the package '{module.split('.')[0]}'; install it with: pip install 'bitl[{name}]'."
        ) from error


def arviz(purpose: str) -> ModuleType:
    """Import ArviZ without the notice about itself that it gives once a day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return optional_import("arviz", "arviz", purpose)


def _frozen(array: np.ndarray[Any, Any]) -> Any:
    array.flags.writeable = False
    return array


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(w in (None, n) and n > 0 for n, w in zip(shape, wanted, strict=True))


def _shape_words(shape: tuple[int | None, ...]) -> str:
    names = iter("SABC")
    return "[" + ", ".join(str(n) if n is not None else next(names) for n in shape) + "]"
