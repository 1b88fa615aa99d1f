"""Transitions of stays as a file: Parquet with the scheme in its metadata, or any table with the same columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .. import _files, _validate
from .._types import IntArray
from .._version import __version__
from ..discretize import Scheme
from ..errors import DataError
from ..labels import Labels
from ..transitions import Transitions
from .audit import Audit
from .rules import ACTIONS

KEY = b"bitl"
NEEDED = ("state", "action", "next_state")


@dataclass(frozen=True, eq=False)
class IcuBatch:
    """Transitions of stays, one entry each ``[n]``, and the scheme of their states."""

    patient: IntArray
    stay: IntArray
    step: IntArray
    state: IntArray
    action: IntArray
    next_state: IntArray
    scheme: Scheme
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def transitions(self) -> Transitions:
        """The batch, with patients as its episodes: splits keep a patient on one side."""
        return Transitions(
            self.state,
            self.action,
            self.next_state,
            num_states=self.scheme.num_states,
            num_actions=len(ACTIONS),
            episode=self.patient,
            labels=Labels(self.scheme.labels, ACTIONS),
        )


def check_target(path: Path) -> None:
    """Raise if transitions cannot go by this name: what is in a file called .csv is read as CSV."""
    if path.suffix != ".parquet":
        raise DataError(
            f"Transitions are written as Parquet; give a name that ends in .parquet instead of {path.name!r}."
        )


def write(batch: IcuBatch, audit: Audit, path: Path, *, protect: bool = True) -> list[Path]:
    """Write transitions (Parquet) and beside them their audit (JSON, and to read): all of them or none."""
    check_target(path)
    targets = [path, path.with_suffix(".audit.json"), path.with_suffix(".audit.md")]
    with ExitStack() as stack:
        readable, plain, table = (stack.enter_context(_files.replacing(target)) for target in reversed(targets))
        _store(batch, table)
        plain.write_text(json.dumps(audit.plain(protect=protect), indent=1) + "\n", encoding="utf-8")
        readable.write_text(audit.markdown(protect=protect), encoding="utf-8")
    return targets


def write_transitions(batch: IcuBatch, path: Path) -> None:
    """Write a Parquet file in one step."""
    with _files.replacing(path) as temporary:
        _store(batch, temporary)


def _store(batch: IcuBatch, path: Path) -> None:
    pyarrow = _validate.optional_import("pyarrow", "icu", "Writing transitions")
    parquet = _validate.optional_import("pyarrow.parquet", "icu", "Writing transitions")
    about = {"version": __version__, "scheme": batch.scheme.to_dict(), "actions": ACTIONS, **batch.settings}
    table = pyarrow.table({name: getattr(batch, name) for name in ("patient", "stay", "step", *NEEDED)})
    parquet.write_table(table.replace_schema_metadata({KEY: json.dumps(about, sort_keys=True)}), path)


def read_transitions(path: str | Path, *, scheme: Scheme | None = None) -> IcuBatch:
    """Read transitions: what ``bitl icu build`` wrote, or a Parquet or CSV table with the same columns.

    Parameters
    ----------
    path
        Columns state, action and next_state (numbers), patient or stay (any ids), step optional.
    scheme
        The scheme of the states; by default the one in the file.
    """
    path = Path(path)
    table = _read(path)
    missing = [name for name in NEEDED if name not in table.column_names]
    if missing:
        raise DataError(
            f"The file {path} has no column {missing[0]!r} (it has {', '.join(table.column_names)}); "
            "it needs state, action, next_state, and patient or stay."
        )
    about = _about(table, path)
    if scheme is None:
        if "scheme" not in about:
            raise DataError(f"The file {path} does not say what its states are; give the scheme with --scheme FILE.")
        scheme = Scheme.from_dict(about["scheme"])
    who = next((name for name in ("patient", "subject_id", "stay", "stay_id") if name in table.column_names), None)
    if who is None:
        raise DataError(f"The file {path} needs a column 'patient' or 'stay', so that splits keep patients whole.")
    stay = next((name for name in ("stay", "stay_id") if name in table.column_names), who)
    columns = {name: _ids(table, name, path) for name in NEEDED}
    size = {"state": scheme.num_states, "next_state": scheme.num_states, "action": len(ACTIONS)}
    checked = {name: _validate.ids(column, name, size=size[name]) for name, column in columns.items()}
    step = _ids(table, "step", path) if "step" in table.column_names else np.zeros(table.num_rows, dtype=np.int64)
    return IcuBatch(
        patient=_groups(table, path, who),
        stay=_groups(table, path, stay, who),  # a hospital may number the stays of each patient from 1
        step=step,
        scheme=scheme,
        settings={key: about[key] for key in ("rules",) if key in about},
        **checked,
    )


def _read(path: Path) -> Any:
    _validate.optional_import("pyarrow", "icu", "Reading transitions")
    if not path.is_file():
        raise DataError(f"There is no file {path}; make one with: bitl icu build --mimic DIR --out {path}.")
    try:
        if path.name.endswith((".csv", ".csv.gz")):
            return _validate.optional_import("pyarrow.csv", "icu", "Reading transitions").read_csv(path)
        return _validate.optional_import("pyarrow.parquet", "icu", "Reading transitions").read_table(path)
    except Exception:  # noqa: BLE001  # whatever the reader says, it may quote patients
        raise DataError(f"Cannot read {path}: it is not a Parquet or CSV table, or damaged.") from None


def _about(table: Any, path: Path) -> dict[str, Any]:
    text = (table.schema.metadata or {}).get(KEY)
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        raise DataError(f"The description inside {path} is damaged; give the scheme with --scheme FILE.") from None
    return found if isinstance(found, dict) else {}


def _ids(table: Any, name: str, path: Path) -> Any:
    if table[name].null_count:
        raise DataError(
            f"The column {name!r} of {path} has {table[name].null_count} empty values; drop such rows first."
        )
    return table[name].to_numpy()


def _groups(table: Any, path: Path, *names: str) -> IntArray:
    """Number the different values, or combinations of values, of columns."""
    numbers = [np.unique(_ids(table, name, path), return_inverse=True)[1] for name in names]
    return np.unique(np.stack(numbers, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
