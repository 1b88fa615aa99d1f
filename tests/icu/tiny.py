"""One made-up stay, small enough to know every transition by heart."""

import csv

IN = "2150-01-01 {}:00"
TABLES = {
    "hosp/patients": [
        ["subject_id", "gender", "anchor_age", "anchor_year"],
        [1, "F", 50, 2149],
        [2, "M", 15, 2150],
        [3, "M", 81, 2150],
        [4, "F", 40, 2150],
        [5, "F", 41, 2150],
    ],
    "icu/icustays": [
        ["subject_id", "hadm_id", "stay_id", "intime", "outtime", "los"],
        [1, 21, 31, "2150-01-01 00:00:00", "2150-01-02 00:00:00", 1.0],
        [2, 22, 32, "2150-01-01 00:00:00", "2150-01-03 00:00:00", 2.0],  # too young
        [3, 23, 33, "2150-01-01 00:00:00", "2150-01-03 00:00:00", 2.0],  # too old
        [4, 24, 34, "2150-01-01 00:00:00", "2150-01-01 23:59:59", 0.99],  # too short
        [5, 25, 35, "2150-01-01 00:00:00", "2150-01-03 00:00:00", 2.0],  # never hypotensive
    ],
    "icu/chartevents": [
        ["subject_id", "stay_id", "charttime", "itemid", "value", "valuenum", "valueuom"],
        [1, 31, IN.format("00:30"), 220052, "80", 80, "mmHg"],
        [1, 31, IN.format("01:30"), 220052, "60", 60, "mmHg"],
        [1, 31, IN.format("01:30"), 220181, "62", 62, "mmHg"],  # in the same minute: the lowest counts
        [1, 31, IN.format("01:10"), 220181, "99", 99, "mmHg"],  # earlier in the same hour
        [1, 31, IN.format("02:10"), 220052, "-3", -3, "mmHg"],  # no measurement
        [1, 31, IN.format("03:10"), 225312, "75", 75, "mmHg"],
        [1, 31, IN.format("00:10"), 220739, "Spontaneously", 4, ""],
        [1, 31, IN.format("00:10"), 223900, "Oriented", 5, ""],
        [1, 31, IN.format("00:10"), 223901, "Obeys Commands", 6, ""],
        [1, 31, IN.format("02:00"), 223835, "60", 60, "%"],
        [1, 31, IN.format("02:30"), 220045, "110", 110, "bpm"],  # not used
        [2, 32, IN.format("02:00"), 220052, "50", 50, "mmHg"],
        [3, 33, IN.format("02:00"), 220052, "50", 50, "mmHg"],
        [4, 34, IN.format("02:00"), 220052, "50", 50, "mmHg"],
        [5, 35, IN.format("02:00"), 220052, "66", 66, "mmHg"],
        [5, 35, IN.format("03:00"), 220052, "", "", "mmHg"],
    ],
    "hosp/labevents": [
        ["subject_id", "hadm_id", "charttime", "itemid", "value", "valuenum", "valueuom"],
        [1, "", "2149-12-31 22:00:00", 50912, "2.5", 2.5, "mg/dL"],
        [1, "", "2149-12-30 18:00:00", 50912, "9.9", 9.9, "mg/dL"],  # too long before admission
        [1, 21, IN.format("02:20"), 50821, "90", 90, "mm Hg"],
    ],
    "icu/inputevents": [
        ["stay_id", "itemid", "starttime", "endtime", "amount", "amountuom", "rate", "rateuom", "patientweight",
         "statusdescription"],
        [31, 221906, IN.format("01:20"), IN.format("02:00"), 3, "mg", 0.1, "mcg/kg/min", 80, "FinishedRunning"],
        [31, 221906, IN.format("00:05"), IN.format("00:50"), 3, "mg", 0.1, "mcg/kg/min", 80, "Rewritten"],
        [31, 225158, IN.format("00:05"), IN.format("05:00"), 500, "ml", 100, "mL/hour", 80, "FinishedRunning"],
        [31, 225158, IN.format("02:05"), IN.format("02:40"), 0.5, "L", 10, "mL/min", 80, "FinishedRunning"],
        [31, 225158, IN.format("03:59"), IN.format("04:30"), 500, "ml", "", "", 80, "FinishedRunning"],
        [31, 220862, IN.format("00:10"), IN.format("00:20"), 500, "ml", "", "", 80, "FinishedRunning"],  # no rate
    ],
}  # fmt: skip


def write(folder, change=lambda _, rows: rows):
    """Write the tables; ``change`` may alter the rows of one."""
    for name, rows in TABLES.items():
        new = change(name, [list(row) for row in rows])
        if new is None:
            continue
        path = folder / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(new)
    return folder
