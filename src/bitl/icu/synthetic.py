"""Made-up patients in the shape of MIMIC-IV: for tests, for trying things out, and for measuring speed.

Every stay follows the same simple story: blood pressure drifts below normal by the patient's severity, vasopressors and
boluses push it up, and clinicians give them more often the lower it is. Oxygenation, consciousness and creatinine
wander. No number comes from a real patient. Tables have MIMIC-IV's names, columns and item ids; columns that
nothing here reads are empty.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import _files, _validate
from .._types import FloatArray, IntArray
from ..errors import DataError

FORMATS = ("csv.gz", "csv", "parquet")
LONGEST = 200  # hours of a stay
EPOCH = np.datetime64("2150-01-01T00:00:00", "s")
FILLER = (220045, 220210, 220277, 223761, 220179, 220180)  # heart rate, breaths, SpO2, ...: charted, not used here
CHUNK = 1_000_000

# the columns of MIMIC-IV 2.2, so that the files look like the official ones
COLUMNS = {
    "hosp/patients": "subject_id gender anchor_age anchor_year anchor_year_group dod",
    "hosp/labevents": "labevent_id subject_id hadm_id specimen_id itemid order_provider_id charttime storetime value "
    "valuenum valueuom ref_range_lower ref_range_upper flag priority comments",
    "icu/icustays": "subject_id hadm_id stay_id first_careunit last_careunit intime outtime los",
    "icu/chartevents": "subject_id hadm_id stay_id caregiver_id charttime storetime itemid value valuenum valueuom "
    "warning",
    "icu/inputevents": "subject_id hadm_id stay_id caregiver_id starttime endtime storetime itemid amount amountuom "
    "rate rateuom orderid linkorderid ordercategoryname secondaryordercategoryname ordercomponenttypedescription "
    "ordercategorydescription patientweight totalamount totalamountuom isopenbag continueinnextdept statusdescription "
    "originalamount originalrate",
}
Table = dict[str, Any]


def synthesise(
    out: Path,
    *,
    patients: int,
    seed: int,
    chart_rows: int | None = None,
    file_format: str = "csv.gz",
    on_step: Callable[[str], None] = lambda _: None,
) -> dict[str, int]:
    """Write made-up tables in MIMIC-IV's layout; return the number of rows of each.

    Parameters
    ----------
    out
        A new or empty folder; ``hosp`` and ``icu`` are made in it.
    patients
        Number of patients; a third of them have two stays.
    seed
        The same seed gives the same tables.
    chart_rows
        At least this many rows in chartevents, filled up with items that nothing here uses.
    file_format
        ``"csv.gz"``, ``"csv"`` or ``"parquet"``.
    on_step
        Told what is being written.
    """
    _validate.one_of(file_format, "file_format", FORMATS)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"The folder {out} is not empty; choose a new one, so that no table is overwritten.")
    rng = np.random.default_rng(_validate.seed_sequence(seed))
    stays = _stays(rng, _validate.positive_int(patients, "patients"))
    course = _course(rng, stays)
    writers: dict[str, Callable[[], Iterator[Table]]] = {
        "hosp/patients": lambda: iter([_patients(stays)]),
        "icu/icustays": lambda: iter([_icustays(stays)]),
        "hosp/labevents": lambda: iter([_labevents(rng, stays, course)]),
        "icu/inputevents": lambda: iter([_inputevents(rng, stays, course)]),
        "icu/chartevents": lambda: _chartevents(rng, stays, course, chart_rows or 0),
    }
    rows = {}
    for name, chunks in writers.items():
        on_step(f"writing {name}")
        rows[name] = _write(out / f"{name}.{file_format}", COLUMNS[name].split(), chunks())
    return rows


def _stays(rng: np.random.Generator, patients: int) -> Table:
    age = np.clip(rng.normal(64, 17, patients), 18, 91).round().astype(np.int64)
    number = 1 + (rng.random(patients) < 1 / 3)
    who = np.repeat(np.arange(patients), number)
    n = len(who)
    hours = np.clip(rng.lognormal(4.0, 0.7, n), 6, LONGEST - 1)
    begin = np.round(rng.uniform(0, 3e8, patients))[who] + np.concatenate([np.arange(k) for k in number]) * 2e6
    return {
        "age": age,
        "who": who,
        "subject_id": 10_000_000 + 37 * np.arange(patients),
        "stay_id": 30_000_000 + 11 * np.arange(n),
        "hadm_id": 20_000_000 + 13 * np.arange(n),
        "hours": hours,
        "begin": begin.astype(np.int64),
        "severity": np.abs(rng.normal(0, 1, n)),
        "weight": rng.uniform(50, 110, n).round(1),
    }


def _course(rng: np.random.Generator, stays: Table) -> Table:
    """Simulate every stay hour by hour; arrays are ``[stay, hour]``."""
    n = len(stays["who"])
    sick = stays["severity"]
    shape = (n, LONGEST)
    course: Table = {key: np.zeros(shape) for key in ("map", "pao2", "creatinine", "gcs")}
    pressor, bolus = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    pressure, oxygen = 82 - 9 * sick + rng.normal(0, 6, n), 110 - 12 * sick + rng.normal(0, 15, n)
    kidney, mind = np.exp(rng.normal(0.1, 0.5, n) + 0.25 * sick), 15 - 2.5 * sick + rng.normal(0, 2, n)
    running = np.zeros(n, dtype=np.bool_)
    for t in range(LONGEST):
        noise = rng.normal(size=(4, n))
        course["map"][:, t], course["pao2"][:, t] = pressure, oxygen
        course["creatinine"][:, t], course["gcs"][:, t] = kidney, np.clip(mind.round(), 3, 15)
        wants = 1 / (1 + np.exp((pressure - np.where(running, 74, 64)) / 3))
        running = rng.random(n) < wants
        bolus[:, t] = (pressure < 68) & (rng.random(n) < 0.12)
        pressor[:, t] = running
        pressure = pressure + 0.2 * (80 - 8 * sick - pressure) + 2.5 * running + 4 * bolus[:, t] + 4 * noise[0]
        oxygen = oxygen + 0.05 * (95 - 10 * sick - oxygen) - 1.5 * bolus[:, t] + 5 * noise[1]
        kidney = kidney * np.exp(0.03 * noise[2] + 0.01 * (pressure < 62))
        mind = mind + 0.05 * (14 - 2 * sick - mind) + 0.5 * noise[3]
        pressure, oxygen = np.clip(pressure, 30, 150), np.clip(oxygen, 35, 400)
        kidney, mind = np.clip(kidney, 0.3, 15), np.clip(mind, 3, 15.4)
    inside = np.arange(LONGEST) < stays["hours"][:, None]
    return {**course, "pressor": pressor & inside, "bolus": bolus & inside, "inside": inside}


def _patients(stays: Table) -> Table:
    size = len(stays["age"])
    first = np.zeros(size, dtype=np.int64)
    first[stays["who"][::-1]] = stays["begin"][::-1]
    year = (EPOCH + first.astype("timedelta64[s]")).astype("datetime64[Y]").astype(np.int64) + 1970
    return {"subject_id": stays["subject_id"], "anchor_age": stays["age"], "anchor_year": year}


def _icustays(stays: Table) -> Table:
    seconds = np.round(3600 * stays["hours"]).astype(np.int64)
    return {
        "subject_id": stays["subject_id"][stays["who"]],
        "hadm_id": stays["hadm_id"],
        "stay_id": stays["stay_id"],
        "intime": _time(stays["begin"]),
        "outtime": _time(stays["begin"] + seconds),
        "los": seconds / 86400,
    }


def _events(
    rng: np.random.Generator, stays: Table, course: Table, item: int, values: FloatArray, every: float
) -> Table:
    """Chart ``values [stay, hour]`` in a share 1/every of the hours, at a random minute."""
    at, hour = np.nonzero(course["inside"] & (rng.random(values.shape) < 1 / every))
    second = stays["begin"][at] + 3600 * hour + 60 * rng.integers(0, 60, len(at))
    late = second > stays["begin"][at] + 3600 * stays["hours"][at]
    at, hour, second = at[~late], hour[~late], second[~late]
    return {"at": at, "second": second, "itemid": np.full(len(at), item), "valuenum": values[at, hour].round(1)}


def _join(parts: list[Table]) -> Table:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _chart_table(stays: Table, events: Table) -> Table:
    at = events["at"]
    return {
        "subject_id": stays["subject_id"][stays["who"][at]],
        "hadm_id": stays["hadm_id"][at],
        "stay_id": stays["stay_id"][at],
        "charttime": _time(events["second"]),
        "itemid": events["itemid"],
        "valuenum": events["valuenum"],
    }


def _chartevents(rng: np.random.Generator, stays: Table, course: Table, rows: int) -> Iterator[Table]:
    gcs = course["gcs"]
    eye, verbal = np.clip(np.round(gcs * 4 / 15), 1, 4), np.clip(np.round(gcs / 3), 1, 5)
    motor = np.clip(gcs - eye - verbal, 1, 6)
    oxygen = np.where(course["pao2"] < 85, 50.0, 30.0)
    plan: tuple[tuple[int, Any, float], ...]
    plan = ((220052, course["map"], 1.6), (220181, course["map"] + 1, 2.5), (220739, eye, 4.0))
    plan += ((223900, verbal, 4.0), (223901, motor, 4.0), (223835, oxygen, 6.0))
    done = 0
    for item, values, every in plan:
        chunk = _chart_table(stays, _events(rng, stays, course, item, values, every))
        done += len(chunk["itemid"])
        yield chunk
    while done < rows:
        number = min(CHUNK, rows - done)
        at = rng.integers(0, len(stays["who"]), number)
        second = stays["begin"][at] + (3600 * stays["hours"][at] * rng.random(number)).astype(np.int64)
        filler = np.asarray(FILLER)[rng.integers(0, len(FILLER), number)]
        values = rng.integers(10, 140, number).astype(np.float64)
        yield _chart_table(stays, {"at": at, "second": second, "itemid": filler, "valuenum": values})
        done += number


def _labevents(rng: np.random.Generator, stays: Table, course: Table) -> Table:
    oxygen = np.where(course["pao2"] < 85, 50.0, 30.0)
    plan = ((50912, course["creatinine"], 10.0), (50821, course["pao2"], 6.0), (50816, oxygen, 24.0))
    events = _join([_events(rng, stays, course, item, values, every) for item, values, every in plan])
    table = _chart_table(stays, events)
    del table["stay_id"]
    return {"labevent_id": np.arange(len(events["at"])), **table}


def _inputevents(rng: np.random.Generator, stays: Table, course: Table) -> Table:
    pressor = np.pad(course["pressor"].astype(np.int8), ((0, 0), (1, 1)))
    change = np.diff(pressor, axis=1)
    at, first = np.nonzero(change == 1)
    last = np.nonzero(change == -1)[1]
    where, hour = np.nonzero(course["bolus"])
    small = rng.integers(0, len(stays["who"]), len(stays["who"]))  # maintenance fluid, too slow to be a bolus
    n, m, k = len(at), len(where), len(small)
    rate_known = rng.random(m) < 0.7
    begin = np.concatenate(
        [
            stays["begin"][at] + 3600 * first + 300,
            stays["begin"][where] + 3600 * hour + 60 * rng.integers(1, 30, m),
            stays["begin"][small] + 7200,
        ]
    )
    lasts = np.concatenate([3600 * (last - first) - 600, np.full(m, 1500), np.full(k, 6 * 3600)])
    every = np.concatenate([at, where, small])
    words = np.array(["FinishedRunning", "Rewritten"])
    return {
        "subject_id": stays["subject_id"][stays["who"][every]],
        "hadm_id": stays["hadm_id"][every],
        "stay_id": stays["stay_id"][every],
        "starttime": _time(begin),
        "endtime": _time(begin + lasts),
        "itemid": np.concatenate([np.full(n, 221906), np.full(m, 225158), np.full(k, 225158)]),
        "amount": np.concatenate([rng.uniform(1, 8, n).round(2), np.full(m, 500.0), np.full(k, 600.0)]),
        "amountuom": np.repeat(["mg", "ml", "ml"], [n, m, k]),
        "rate": np.concatenate(
            [rng.uniform(0.02, 0.4, n).round(3), np.where(rate_known, 999.0, np.nan), np.full(k, 100.0)]
        ),
        "rateuom": np.concatenate(
            [
                np.full(n, "mcg/kg/min", dtype=object),
                np.where(rate_known, np.array("mL/hour", dtype=object), np.array(None)),
                np.full(k, "mL/hour"),
            ]
        ),
        "patientweight": stays["weight"][every],
        "statusdescription": words[(rng.random(n + m + k) < 0.02).astype(int)],
    }


def _time(seconds: IntArray) -> Any:
    return EPOCH + np.asarray(seconds).astype("timedelta64[s]")


def _write(path: Path, columns: list[str], chunks: Iterator[Table]) -> int:
    """Write chunks of columns as one file, in one step; columns that a chunk lacks are empty."""
    pa = _validate.optional_import("pyarrow", "icu", "Made-up tables")
    done = 0
    with _files.replacing(path) as temporary:
        opened: list[Any] = []
        try:
            for chunk in chunks:
                arrays = {}
                for name in columns:
                    values = chunk.get(name)
                    size = len(next(iter(chunk.values())))
                    arrays[name] = pa.nulls(size, pa.string()) if values is None else pa.array(values, from_pandas=True)
                table = pa.table(arrays)
                opened = opened or _writer(temporary, table.schema, path.name)
                opened[0].write_table(table)
                done += table.num_rows
        finally:
            for one in opened:
                one.close()
    return done


def _writer(path: Path, schema: Any, name: str) -> list[Any]:
    """Return a writer of tables, and what is to be closed after it, in this order."""
    if name.endswith(".parquet"):
        parquet = _validate.optional_import("pyarrow.parquet", "icu", "Made-up tables")
        return [parquet.ParquetWriter(path, schema)]
    csv = _validate.optional_import("pyarrow.csv", "icu", "Made-up tables")
    file = path.open("wb")
    # the lowest level: three times as fast; no time or name in the header: the same tables are the same bytes
    sinks: list[Any] = [gzip.GzipFile("", "wb", 1, file, mtime=0), file] if name.endswith(".gz") else [file]
    return [csv.CSVWriter(sinks[0], schema, write_options=csv.WriteOptions(quoting_style="needed")), *sinks]
