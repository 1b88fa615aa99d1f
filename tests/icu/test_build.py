"""From MIMIC-IV's tables to transitions, on a stay that is known by heart and on made-up ones."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tiny

from bitl import DataError, Task, Transitions
from bitl.discretize import Scheme
from bitl.icu import Rules, build, synthesise
from bitl.icu.audit import Audit, batch_sections

DEMO = Path(__file__).parents[3] / "shared" / "data" / "mimic-iv-demo"
SCHEME = Scheme.example()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    top = tmp_path_factory.mktemp("made-up")
    synthesise(top / "mimic", patients=60, seed=3)
    return top / "mimic"


def rules(**changes):
    return Rules(**{"window_hours": 4, **changes})


def bins(built):
    """States as bins, the last next state included."""
    batch = built.batch
    return SCHEME.decode(np.append(batch.state, batch.next_state[-1])).tolist()


def test_every_transition_of_the_known_stay(folder, tmp_path):
    built = build(folder, scratch=tmp_path, rules=rules())
    assert bins(built) == [[0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1]]
    assert built.batch.action.tolist() == [0, 1, 2, 2]
    assert built.batch.step.tolist() == [0, 1, 2, 3]
    assert built.batch.stay.tolist() == built.batch.patient.tolist() == [0, 0, 0, 0]
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_the_attrition_names_every_filter(folder, tmp_path):
    plain = build(folder, scratch=tmp_path, rules=rules()).audit.plain(protect=False)
    assert [(row["after"], row["stays"], row["patients"]) for row in plain["attrition"]] == [
        ("all ICU stays", 5, 5),
        ("age 18 to 80", 3, 3),
        ("at least 24 h in the ICU", 2, 2),
        ("some mean arterial pressure at most 65 mmHg", 1, 1),
        ("at least one transition", 1, 1),
    ]
    counts = {row["quantity"]: (row["values"], row["left out"]) for row in plain["measurements"]}
    assert counts["map"] == (5, 1)
    assert counts["creatinine"] == (1, 0)


def test_a_stay_without_a_patient_is_counted(tmp_path):
    folder = tiny.write(tmp_path / "mimic", change_table("hosp/patients", lambda rows: rows[:5]))
    rows = build(folder, scratch=tmp_path, rules=rules()).audit.plain(protect=False)["attrition"]
    assert [row["stays"] for row in rows] == [5, 2, 1, 1, 1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"within_step": "mean"}, [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1], [1, 0, 1, 1], [1, 0, 1, 1]]),
        ({"within_step": "min"}, [[0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1]]),
        ({"carry_hours": 1}, [[0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 0], [0, 0, 1, 0]]),
        ({"lookback_hours": 1}, [[0, 0, 1, 0], [0, 0, 1, 0], [0, 1, 1, 0], [1, 1, 1, 0], [1, 0, 1, 0]]),
        ({"impute": "drop"}, [[1, 1, 1, 1], [1, 0, 1, 1]]),
        ({"state_time": "during"}, [[0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1]]),
    ],
)
def test_rules_about_states(folder, tmp_path, changes, expected):
    assert bins(build(folder, scratch=tmp_path, rules=rules(**changes))) == expected


@pytest.mark.parametrize(
    ("changes", "actions"),
    [
        ({"crystalloid_rate": 99}, [2, 1, 2, 2]),
        ({"crystalloid_ml": 500}, [0, 1, 0, 0]),
        ({"window_hours": 6, "bolus_when": "running"}, [0, 1, 2, 2, 2, 0]),
        ({"step_hours": 2}, [1, 2]),
        ({"step_hours": 0.5, "window_hours": 2, "vasopressor_when": "started"}, [0, 0, 1, 0]),
    ],
)
def test_rules_about_treatments(folder, tmp_path, changes, actions):
    assert build(folder, scratch=tmp_path, rules=rules(**changes)).batch.action.tolist() == actions


def test_window_and_length(folder, tmp_path):
    assert len(build(folder, scratch=tmp_path, rules=Rules(window_hours=0)).batch.state) == 24
    assert len(build(folder, scratch=tmp_path).batch.state) == 24, "a stay shorter than the window is used whole"
    looser = Rules(window_hours=0, min_hours=0, map_at_most=70)
    assert len(build(folder, scratch=tmp_path, rules=looser).batch.state) == 24 + 23 + 48


def test_a_value_outside_the_schemes_limits_is_no_measurement(tmp_path):
    folder = tiny.write(
        tmp_path / "mimic",
        change_table(
            "icu/chartevents", lambda rows: [*rows, [1, 31, tiny.IN.format("02:30"), 220052, "25", 25, "mmHg"]]
        ),
    )
    narrow = SCHEME.to_dict()
    narrow["variable"][1]["limits"] = "[30, 200]"
    built = build(folder, scratch=tmp_path, rules=rules(), scheme=Scheme.from_dict(narrow))
    assert bins(built)[3] == [1, 1, 1, 1], "the low pressure before is carried on, not replaced by a normal one"
    plain = built.audit.plain(protect=False)
    assert (plain["measurements"][0]["values"], plain["measurements"][0]["left out"]) == (5, 2)
    assert plain["missingness"][1]["measured in the step"] == 0.6
    narrow["variable"][2]["limits"] = "[3, 14]"
    narrow["variable"][2] |= {"bins": [{"label": "GCS", "interval": "[3, 14]"}], "normal": 14}
    plain = build(folder, scratch=tmp_path, rules=rules(), scheme=Scheme.from_dict(narrow)).audit.plain(protect=False)
    assert plain["missingness"][2]["nothing known"] == 1.0, "a sum of 15 is assumed to be 14, and said to be assumed"


def test_ids_are_kept_only_on_request(folder, tmp_path):
    built = build(folder, scratch=tmp_path, rules=rules(), keep_ids=True)
    assert built.batch.patient.tolist() == [1] * 4
    assert built.batch.stay.tolist() == [31] * 4


def test_states_measured_during_the_treatment_are_called_a_leak(made_up, tmp_path):
    leaking = build(made_up, scratch=tmp_path, rules=Rules(state_time="during"))
    assert any("The action leaks into the state" in words for words in leaking.audit.warnings)
    assert any("mean arterial pressure" in words for words in leaking.audit.warnings)
    clean = build(made_up, scratch=tmp_path)
    assert not any("leak" in words for words in clean.audit.warnings)


def test_first_stays_only(made_up, tmp_path):
    every, first = (
        build(made_up, scratch=tmp_path, rules=Rules(first_stay_only=f), keep_ids=True) for f in (False, True)
    )
    stays = {(p, s) for p, s in zip(first.batch.patient, first.batch.stay, strict=True)}
    assert len(stays) == len({p for p, _ in stays}) == len(np.unique(every.batch.patient))
    assert len(np.unique(every.batch.stay)) > len(stays)
    earliest = {p: every.batch.stay[every.batch.patient == p].min() for p, _ in stays}  # made-up ids rise in time
    assert all(earliest[p] == s for p, s in stays)


@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_every_file_format_gives_the_same(made_up, tmp_path, file_format):
    synthesise(tmp_path / "other", patients=60, seed=3, file_format=file_format)
    first, second = build(made_up, scratch=tmp_path), build(tmp_path / "other", scratch=tmp_path)
    for name in ("patient", "stay", "step", "state", "action", "next_state"):
        np.testing.assert_array_equal(getattr(first.batch, name), getattr(second.batch, name))
    assert first.audit.plain() == second.audit.plain()


def test_parquet_in_parts_and_tables_without_folders(made_up, tmp_path):
    from pyarrow import csv, parquet

    flat = tmp_path / "flat"
    (flat / "chartevents").mkdir(parents=True)
    for path in sorted(made_up.rglob("*.csv.gz")):
        if path.name.startswith("chartevents"):
            table = csv.read_csv(path)
            for i in range(2):
                half = table.num_rows // 2
                parquet.write_table(table.slice(i * half, None if i else half), flat / "chartevents" / f"{i}.parquet")
        else:
            (flat / path.name).write_bytes(path.read_bytes())
    first, second = build(made_up, scratch=tmp_path), build(flat, scratch=tmp_path)
    np.testing.assert_array_equal(first.batch.state, second.batch.state)


def test_made_up_tables_are_the_same_for_the_same_seed(made_up, tmp_path):
    synthesise(tmp_path / "again", patients=60, seed=3)
    for path in sorted(made_up.rglob("*.csv.gz")):
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(made_up)).read_bytes()
    rows = synthesise(tmp_path / "more", patients=5, seed=0, chart_rows=20_000, file_format="parquet")
    assert rows["icu/chartevents"] == 20_000
    with pytest.raises(DataError, match="is not empty; choose a new one, so that no table is overwritten"):
        synthesise(tmp_path / "more", patients=5, seed=0)


def test_the_audit_hides_small_counts(folder, tmp_path):
    audit = build(folder, scratch=tmp_path, rules=rules()).audit
    text = json.dumps(audit.plain()) + audit.markdown()
    assert '"stays": "<10"' in text
    assert "| all ICU stays | <10 | <10 |" in text
    assert '"stays": 5' in json.dumps(audit.plain(protect=False))


def covered(visits):
    """Return the audit of a batch with these visits ``[state, action]``."""
    s, a = np.indices(visits.shape)
    state, action = (np.repeat(x.ravel(), visits.ravel()) for x in (s, a))
    batch = Transitions(state, action, np.zeros_like(state), num_states=len(visits), num_actions=visits.shape[1])
    return Audit(batch_sections(batch, Task(reward=np.zeros(len(visits)), discount=0.9), share=0.05))


def test_a_small_count_cannot_be_had_from_a_share_or_by_subtraction():
    audit = covered(np.array([[500, 40, 3], [300, 5, 0], [100, 60, 0]]))
    shown = audit.plain()
    assert [(row["steps"], row["share"]) for row in shown["actions"]] == [
        (900, 0.893),
        ("hidden", "hidden"),  # 1,008 - 900 - 105 is the last one
        ("<10", "<1.0 %"),
    ]
    assert [list(row.values())[1:] for row in shown["actions_per_state"]] == [
        [500, "hidden", "<10"],
        [300, "<10", 0],
        [100, 60, 0],
    ]
    assert "| hidden | hidden |" in audit.markdown()
    plain = audit.plain(protect=False)
    assert [row["steps"] for row in plain["actions"]] == [900, 105, 3]
    assert plain["actions"][2]["share"] == round(3 / 1008, 6)


def test_nothing_hides_that_gives_nothing_away():
    shown = covered(np.array([[500, 4, 12], [300, 5, 30], [100, 0, 0]])).plain()
    assert [row["steps"] for row in shown["actions"]] == ["hidden" if n == 42 else n for n in (900, "<10", 42)]
    assert [list(row.values())[2] for row in shown["actions_per_state"]] == ["<10", "<10", 0]
    assert [list(row.values())[3] for row in shown["actions_per_state"]] == ["hidden", 30, 0], "they add up to the 42"
    both_one = covered(np.array([[50, 1], [30, 1], [10, 20]])).plain()  # 22 - 20 leaves 1 and 1
    assert [list(row.values())[2] for row in both_one["actions_per_state"]] == ["<10", "<10", "hidden"]


# ---------------------------------------------------------------------------------------------------- bad input


def change_table(which, edit):
    return lambda name, rows: edit(rows) if name == which else rows


def scaled(column, factor):
    def edit(rows):
        at = rows[0].index(column)
        for row in rows[1:]:
            row[at] = row[at] * factor if row[at] != "" else ""
        return rows

    return edit


def renamed(old, new):
    def edit(rows):
        rows[0][rows[0].index(old)] = new
        return rows

    return edit


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            change_table("icu/chartevents", lambda _: None),
            r"There is no table icu/chartevents in .* \(looked for .csv.gz",
        ),
        (
            change_table("icu/chartevents", renamed("stay_id", "icustay_id")),
            r"The table chartevents of .* has no column 'stay_id', which MIMIC-IV 2 and 3 have \(it has subject_id, "
            r"icustay_id, .*\); if it goes by another name there, say so with --rename chartevents.stay_id=NAME",
        ),
        (
            change_table("icu/chartevents", scaled("valuenum", 0.0133)),
            r"The median of mean arterial pressure is 0.\d+; in mmHg it should lie between 20 and 200",
        ),
        (
            change_table("icu/chartevents", scaled("valuenum", 133.0)),
            r"All \d+ values of mean arterial pressure are outside the limits; are they in mmHg\?",
        ),
        (
            change_table("hosp/labevents", scaled("valuenum", 40.0)),
            r"The median of creatinine is 100; in mg/dL it should lie between 0.1 and 25",
        ),
        (
            change_table("hosp/patients", lambda rows: [*rows, *rows[1:]]),
            r"The tables icustays and patients of .* give 5 stays more than once; were they loaded twice\?",
        ),
        (change_table("icu/icustays", lambda rows: rows[:1]), r"No stay is left after the filter 'all ICU stays'"),
        (change_table("hosp/patients", lambda rows: rows[:1]), r"No stay is left after the filter 'age 18 to 80'"),
        (
            change_table("icu/chartevents", lambda rows: [row for row in rows if row[1] != 31]),
            r"No stay is left after the filter 'some mean arterial pressure at most 65 mmHg'; check the folder or",
        ),
    ],
)
def test_bad_tables_get_a_sentence(tmp_path, change, sentence):
    folder = tiny.write(tmp_path / "mimic", change)
    with pytest.raises(DataError, match=sentence):
        build(folder, scratch=tmp_path / "scratch", rules=rules())
    assert not list((tmp_path / "scratch").glob("*")), "nothing is left behind"


def test_a_renamed_column_can_be_named(tmp_path, folder):
    other = tiny.write(tmp_path / "mimic", change_table("icu/chartevents", renamed("stay_id", "ICUSTAY_ID")))
    names = {"chartevents.stay_id": "icustay_id"}
    built = build(other, scratch=tmp_path, rules=rules(), renamed=names)
    assert bins(built) == bins(build(folder, scratch=tmp_path, rules=rules()))
    with pytest.raises(DataError, match=r"There is no column 'chartevents.stay' to rename; name it like"):
        build(other, scratch=tmp_path, renamed={"chartevents.stay": "x"})


def test_a_value_that_is_no_number_is_not_quoted(tmp_path):
    def edit(rows):
        rows[3][5] = "secret words of a patient"
        return rows

    folder = tiny.write(tmp_path / "mimic", change_table("icu/chartevents", edit))
    with pytest.raises(
        DataError, match=r"Cannot read .*mimic: ConversionException.* line 4.*; is a value there"
    ) as error:
        build(folder, scratch=tmp_path)
    assert "secret" not in str(error.value)
    assert error.value.__cause__ is None


def test_files_that_are_damaged(tmp_path):
    folder = tiny.write(tmp_path / "mimic")
    (folder / "icu" / "chartevents.csv").unlink()
    (folder / "icu" / "chartevents.csv.gz").write_bytes(b"\x1f\x8b\x08\x00 cut off")
    with pytest.raises(DataError, match=r"Cannot read .*chartevents.csv.gz: .*; is it a complete CSV file\?"):
        build(folder, scratch=tmp_path)
    (folder / "icu" / "chartevents.csv.gz").unlink()
    (folder / "icu" / "chartevents.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match=r"Cannot read .*chartevents.parquet: it is not a Parquet file, or damaged"):
        build(folder, scratch=tmp_path)
    (folder / "icu" / "chartevents.parquet").unlink()
    (folder / "icu" / "chartevents.csv").write_text("")
    with pytest.raises(DataError, match=r"The first line of .*chartevents.csv must name the columns"):
        build(folder, scratch=tmp_path)


def test_a_memory_that_is_none(tmp_path, folder):
    with pytest.raises(DataError, match="DuckDB cannot work with a memory of 'lots'; give more, such as 1500MB"):
        build(folder, scratch=tmp_path, memory="lots")
    with pytest.raises(DataError, match=r"Not enough memory or disk space to read .*; allow more memory"):
        build(folder, scratch=tmp_path, memory="1KB")
    assert os.listdir(tmp_path) == []


def test_times_may_have_fractions_of_a_second(folder, tmp_path):
    def edit(name, rows):
        late = ".000" if name == "icu/icustays" else ".750"
        return [[f"{x}{late}" if str(x).startswith("2150-01-01 ") else x for x in row] for row in rows]

    whole = build(folder, scratch=tmp_path, rules=rules())
    finer = build(tiny.write(tmp_path / "finer", edit), scratch=tmp_path, rules=rules())
    np.testing.assert_array_equal(whole.batch.state, finer.batch.state)
    np.testing.assert_array_equal(whole.batch.action, finer.batch.action)


def test_other_bad_input(tmp_path, folder):
    with pytest.raises(
        DataError, match=r"There is no folder .*nowhere; give the one that holds MIMIC-IV's hosp and icu"
    ):
        build(tmp_path / "nowhere", scratch=tmp_path)
    lactate = SCHEME.to_dict()
    lactate["variable"][0]["column"] = "lactate"
    with pytest.raises(DataError, match=r"The scheme asks for the column 'lactate'; from MIMIC-IV come pf_ratio, map"):
        build(folder, scratch=tmp_path, scheme=Scheme.from_dict(lactate))
    unknown = tiny.write(tmp_path / "no-labs", change_table("hosp/labevents", lambda rows: rows[:1]))
    with pytest.raises(DataError, match="No transition is left: every step has an unknown value; use impute 'normal'"):
        build(unknown, scratch=tmp_path, rules=rules(impute="drop"))
    warned = build(unknown, scratch=tmp_path, rules=rules()).audit.warnings
    assert "creatinine is unknown in 100 % of the steps, where its normal value is assumed." in warned
    dropped = build(folder, scratch=tmp_path, rules=rules(impute="drop")).audit.warnings
    assert "PaO2/FiO2 is unknown in 60 % of the steps, which are dropped." in dropped


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["window=0"], r"A rule reads like 'window_hours=0'; got 'window=0'. The rules are min_age, max_age"),
        (["window_hours=long"], "The rule window_hours is a number. Got 'long' instead"),
        (["window_hours=-1"], r"The 'window_hours' parameter must be a number in \[0, inf\). Got -1.0 instead"),
        (["step_hours=0"], r"The 'step_hours' parameter must be a number in \(0, inf\)"),
        (["impute=guess"], "The 'impute' parameter must be one of 'normal', 'drop'. Got 'guess' instead"),
        (["first_stay_only=maybe"], "The rule first_stay_only is yes or no. Got 'maybe' instead"),
        (["min_age=90"], "The ages 90 to 80 are nobody's; exchange them"),
    ],
)
def test_bad_rules_get_a_sentence(words, sentence):
    with pytest.raises(DataError, match=sentence):
        Rules.parse(words)


def test_every_rule_says_where_it_comes_from():
    described = Rules.describe()
    assert len(described) == 19
    assert all(row["meaning"] and row["source"] for row in described)
    assert Rules.parse(["first-stay-only=yes", "min_age=20"]) == Rules(first_stay_only=True, min_age=20)


def test_a_database_that_refuses(tmp_path):
    pytest.importorskip("psycopg")
    with pytest.raises(
        DataError, match=r"Cannot connect to the database 'mimic' at 127.0.0.1:1: .*; check address"
    ) as no:
        build("postgresql://me:s3cret@127.0.0.1:1/mimic", scratch=tmp_path)
    assert "s3cret" not in str(no.value)
    assert no.value.__cause__ is None
    with pytest.raises(DataError, match="The address of the database must read like postgresql://"):
        build("postgresql://me:s3cret@host:port/mimic", scratch=tmp_path)


@pytest.mark.parametrize("password", ["12/s3cret", "12?s3cret", "12#s3cret"])
def test_a_password_that_looks_like_a_path_is_not_quoted(tmp_path, password):
    pytest.importorskip("psycopg")
    with pytest.raises(DataError, match="has an '@' after the host; write '/', '\\?', '#' and '@' of a password") as no:
        build(f"postgresql://me:{password}@127.0.0.1:1/mimic", scratch=tmp_path)
    assert "s3cret" not in str(no.value)


def test_options_of_a_database_are_passed_on(tmp_path):
    pytest.importorskip("psycopg")
    with pytest.raises(DataError, match=r"Cannot connect to .*: invalid sslmode value.*; check address") as no:
        build("postgresql://me@127.0.0.1:1/mimic?sslmode=maybe&password=s3cret", scratch=tmp_path)
    assert "s3cret" not in str(no.value)


@pytest.mark.skipif(not DEMO.is_dir(), reason="the MIMIC-IV demo is not here")
def test_the_real_demo(tmp_path):
    built = build(DEMO, scratch=tmp_path)
    rows = built.audit.plain(protect=False)["attrition"]
    assert [row["stays"] for row in rows] == [140, 116, 98, 83, 83]
    assert [row["patients"] for row in rows] == [100, 84, 74, 66, 66]
    assert len(built.batch.state) == 4770
    assert len(build(DEMO, scratch=tmp_path, rules=Rules(window_hours=0)).batch.state) == 9553
    assert os.listdir(tmp_path) == []
