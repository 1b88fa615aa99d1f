"""The ICU study end to end, on made-up stays and few states, so that every method is quick."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from bitl import DataError, InfeasibleError, methods
from bitl.cli import main
from bitl.experiments import icu, icu_report
from bitl.icu import IcuBatch, build, read_transitions, synthesise
from bitl.icu.files import write, write_transitions

COARSE = """
name = "coarse"
[[variable]]
name = "bp"
column = "map"
unit = "mmHg"
limits = "(0, 300)"
normal = 80
bins = [{ label = "MAP at least 70", interval = ">= 70" }, { label = "MAP below 70", interval = "< 70" }]
[[variable]]
name = "crea"
column = "creatinine"
unit = "mg/dL"
limits = "(0, 150]"
normal = 1.0
bins = [
    { label = "creatinine at most 1.9", interval = "<= 1.9" },
    { label = "creatinine over 1.9", interval = "> 1.9" },
]
[reward.standard]
base = 60
per_bin = { bp = -10, crea = -10 }
[reward.transfer]
base = 60
per_bin = { crea = -10 }
"""
PROGRAM = "from bitl.cli import main; main()"


def bitl(*arguments: str, cwd: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", before + PROGRAM, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def top(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    synthesise(folder / "mimic", patients=60, seed=5)
    (folder / "coarse.toml").write_text(COARSE)
    return folder


@pytest.fixture(scope="module")
def done(top):
    """The two commands a user gives, on made-up tables."""
    built = bitl("icu", "build", "--mimic", "mimic", "--scheme", "coarse.toml", cwd=top)
    small = ("--draws", "60", "--rounds", "40", "--epsilon", "5", "--ask", "1,1:3")
    return built, bitl("icu", "run", *small, cwd=top), top / "out" / "icu"


def test_build_prints_and_stores_the_audit(done):
    built, _, out = done
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    for words in ("some mean arterial pressure at most 65 mmHg", "self-loops", "carried", "constraints"):
        assert words in built.stdout
    audit = json.loads((out / "transitions.audit.json").read_text())
    assert {"attrition", "measurements", "missingness", "coverage", "actions", "actions_per_state"} <= set(audit)
    assert audit["settings"]["rules"]["window_hours"] == 72
    assert "## Actions per state" in (out / "transitions.audit.md").read_text()


def test_run_makes_tables_figures_and_a_report(done):
    _, ran, out = done
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    report = (out / "report.md").read_text()
    for name in ("MLE", "ITL", "MCE", "PS", "BITL"):
        assert f"{name}, epsilon 5: " in report
    assert "ITL, epsilon 5: 0 of " in report
    assert "BITL, epsilon 5: 60 of 60 draws satisfy every constraint" in report
    assert "Held-out matching recommends epsilon = " in report
    assert "R-hat" in report
    table = (out / "tables" / "icu-epsilon5.csv").read_text()
    assert "best matching,ITL," in table
    assert ",0.51," in table, "the published number stands beside ours"
    assert "paper" in (out / "tables" / "icu-epsilon5.md").read_text()
    assert "±" not in (out / "tables" / "icu-epsilon5.md").read_text(), "a single dataset has no spread"
    for name in ("tuning.png", "what-if-1.png", "what-if-1.svg", "tables/icu-epsilon5.tex", "tuning.csv"):
        assert (out / name).stat().st_size > 0
    assert "vasopressor and fluid bolus" in (out / "what-if-1.svg").read_text()


def test_no_patient_is_named_outside_the_transitions(done, top):
    _, _, out = done
    ids = [str(x) for x in np.unique(build(top / "mimic", scratch=top, keep_ids=True).batch.patient)]
    for path in top.rglob("*"):
        if path.is_file() and "mimic" not in path.parts and path.suffix in (".md", ".json", ".csv", ".tex", ".svg"):
            text = path.read_text()
            assert not [x for x in ids if x in text], f"{path} names a patient"
    assert {path.name for path in top.iterdir()} == {"mimic", "coarse.toml", "out"}, "nothing is kept elsewhere"
    assert not list(out.glob(".*"))


@pytest.fixture(scope="module")
def batch(top):
    from bitl.discretize import Scheme

    return build(top / "mimic", scratch=top, scheme=Scheme.from_toml(COARSE)).batch


def few(**changes):
    return icu.Settings(**{"epsilons": (5.0,), "tuned": (), "methods": ("MLE", "ITL"), **changes})


def test_patients_are_on_one_side_of_the_split(batch):
    train, held = icu.split(batch.transitions, 0.25, 0)
    assert not set(train.episode) & set(held.episode)
    assert len(train) + len(held) == len(batch.state)
    assert len(set(held.episode)) == round(0.25 * len(set(batch.patient)))
    again = icu.split(batch.transitions, 0.25, 0)[1]
    np.testing.assert_array_equal(again.state, held.state)
    other = icu.split(batch.transitions, 0.25, 1)[1]
    assert set(other.episode) != set(held.episode)
    whole, same = icu.split(batch.transitions, 0, 0)
    assert whole is same


def test_matching_by_hand():
    from bitl import Counts

    N = np.zeros((3, 2, 3))
    N[0, 0, 1], N[0, 1, 1], N[1, 1, 2] = 97, 3, 10  # state 0: only action 0 is valid; state 2 was never visited
    policy = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    assert icu.matching(policy, Counts(N), 0.05) == (0.5, 0.5)
    N[0, 1, 1] = 30
    assert icu.matching(policy, Counts(N), 0.05) == (0.5, 1.0)


def test_itl_stays_in_support_and_mle_does_not_have_to(batch):
    study = icu.run(batch, settings=few(validation=0))
    assert study.scores[5.0, "ITL"]["violations"] == 0
    assert study.scores[5.0, "ITL"]["epsilon_matching_seen"] == 1.0
    assert study.scores[5.0, "MLE"]["violations"] > 0
    assert study.task.start.sum() == pytest.approx(1)
    first = {int(stay): int(batch.state[batch.stay == stay][0]) for stay in np.unique(batch.stay)}
    np.testing.assert_allclose(study.task.start, np.bincount(list(first.values()), minlength=4) / len(first))
    assert "matching judged on the data that was learned from" in icu_report.tables(study)[0].title


def test_questions_are_about_actions_never_taken_where_clinicians_were_seen(top, tmp_path):
    study = icu.run(build(top / "mimic", scratch=tmp_path).batch, settings=few(methods=("MLE", "ITL")))
    visits = study.train.counts.visits
    assert len({s for s, _ in study.asked}) == len(study.asked) == 2
    for (s, a), answer in zip(study.asked, study.questions, strict=True):
        assert visits[s, a] == 0
        assert visits[s].sum() > 0
        mle, itl = answer.predictions
        assert mle.uniform
        assert not itl.uniform, "the experts' competence says something"
        assert answer.state == study.batch.scheme.labels[s]
    chosen = icu.run(study.batch, settings=few(methods=("MLE",)), ask=[(20, "fluid bolus")])
    assert chosen.asked == ((20, 2),)


def test_a_method_that_finds_no_model_leaves_a_gap_and_a_warning(batch):
    def refuses(batch, *, task, epsilon):
        raise InfeasibleError("No model meets the constraints.")

    methods.register("refuses", refuses)
    try:
        study = icu.run(batch, settings=few(methods=("MLE", "refuses")))
    finally:
        methods.unregister("refuses")
    assert icu.warnings_of(study) == ["refuses at epsilon 5: No model meets the constraints."]
    assert "| – |" in icu_report.tables(study)[0].markdown()


def test_a_state_that_contains_its_treatment_is_called_a_leak(batch):
    bins = batch.scheme.decode(batch.state)
    bins[:, 0] = batch.action > 0
    leaking = IcuBatch(
        batch.patient, batch.stay, batch.step, batch.scheme.encode(bins), batch.action, batch.next_state, batch.scheme
    )
    study = icu.run(leaking, settings=few(methods=("MLE",)))
    words = icu_report.audit(study).warnings
    assert len(words) == 1
    assert words[0].startswith("bp alone explains ")
    assert "the state seems to contain the treatment itself" in words[0]
    assert icu_report.audit(icu.run(batch, settings=few(methods=("MLE",)))).warnings == ()


def test_small_counts_are_hidden_in_questions(batch):
    study = icu.run(batch, settings=few(methods=("MLE", "ITL")))
    visits = study.train.counts.visits
    s, a = (int(i) for i in np.argwhere((visits > 0) & (visits < 10))[0])
    assert icu_report.note(study, s, a, protect=True).startswith("seen <10 times here in the patients learned from")
    assert icu_report.note(study, s, a, protect=False).startswith(f"seen {int(visits[s, a])} times")
    whole = icu.run(batch, settings=few(methods=("MLE",), validation=0))
    assert " times here in the data; " in icu_report.note(whole, s, a, protect=True)


def test_transitions_survive_the_way_to_a_file_and_back(batch, tmp_path):
    write_transitions(batch, tmp_path / "t.parquet")
    again = read_transitions(str(tmp_path / "t.parquet"))
    for name in ("patient", "stay", "step", "state", "action", "next_state"):
        np.testing.assert_array_equal(getattr(again, name), getattr(batch, name))
    assert again.scheme == batch.scheme
    arrow_csv.write_csv(parquet.read_table(tmp_path / "t.parquet"), tmp_path / "t.csv")
    from_csv = read_transitions(tmp_path / "t.csv", scheme=batch.scheme)
    np.testing.assert_array_equal(from_csv.state, batch.state)
    with pytest.raises(DataError, match=r"t.csv does not say what its states are; give the scheme with --scheme FILE"):
        read_transitions(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"state": [0], "action": [0]}, r"has no column 'next_state' \(it has state, action\); it needs state, action"),
        ({"state": [0], "action": [0], "next_state": [0]}, "needs a column 'patient' or 'stay'"),
        (
            {"state": [9], "action": [0], "next_state": [0], "stay": ["a"]},
            "The 'state' ids must be from 0 to 3. Got 9 in row 0 instead",
        ),
        (
            {"state": [0], "action": [4], "next_state": [0], "stay": [1]},
            "The 'action' ids must be from 0 to 3. Got 4 in row 0 instead",
        ),
        ({"state": [None], "action": [0], "next_state": [0], "stay": [1]}, "'state' of .* has 1 empty values"),
        (
            {"state": [0, 0], "action": [0, 0], "next_state": [0, 0], "patient": ["a", None]},
            "The column 'patient' of .* has 1 empty values; drop such rows first",
        ),
    ],
)
def test_tables_that_are_no_transitions(batch, tmp_path, columns, sentence):
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=sentence):
        read_transitions(tmp_path / "t.parquet", scheme=batch.scheme)


def test_stays_may_be_numbered_anew_for_each_patient(batch, tmp_path):
    columns = {"patient": ["a", "a", "b", "b"], "stay": [1, 2, 1, 1], "step": [0, 0, 0, 1], "state": [0, 1, 2, 3]}
    table = pyarrow.table({**columns, "action": [0, 1, 2, 3], "next_state": [0, 0, 3, 3]})
    parquet.write_table(table, tmp_path / "t.parquet")
    read = read_transitions(tmp_path / "t.parquet", scheme=batch.scheme)
    assert len(np.unique(read.stay)) == 3
    assert read.stay[2] == read.stay[3] != read.stay[0]
    study = icu.run(read, settings=few(methods=("MLE",), validation=0))
    np.testing.assert_allclose(study.task.start, [1 / 3, 1 / 3, 1 / 3, 0])


def test_files_that_are_no_tables(tmp_path):
    with pytest.raises(DataError, match=r"There is no file .*t.parquet; make one with: bitl icu build"):
        read_transitions(tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_text("not a table")
    with pytest.raises(DataError, match=r"Cannot read .*t.parquet: it is not a Parquet or CSV table, or damaged"):
        read_transitions(tmp_path / "t.parquet")


def test_a_full_disk_leaves_nothing_half_written(top, tmp_path):
    before = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, {resource.RLIM_INFINITY})); "
    done = bitl("icu", "build", "--mimic", str(top / "mimic"), "--out", "full/t.parquet", cwd=tmp_path, before=before)
    assert done.returncode == 2
    assert done.stderr.startswith("bitl: Cannot write full/t.parquet: ")
    assert done.stderr.endswith("; nothing was changed there.\n")
    assert list((tmp_path / "full").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("build", "--mimic", "nowhere"), "bitl: There is no folder nowhere; give the one that holds"),
        (
            ("build", "--mimic", ".", "--out", "t.csv"),
            "bitl: Transitions are written as Parquet; give a name that ends in .parquet instead of 't.csv'.",
        ),
        (("build", "--mimic", ".", "--rule", "x=1"), "bitl: A rule reads like 'window_hours=0'; got 'x=1'."),
        (
            ("build", "--mimic", ".", "--rename", "x"),
            "bitl: A renamed column reads like chartevents.stay_id=icustay_id.",
        ),
        (("build", "--mimic", ".", "--scheme", "no.toml"), "bitl: Cannot read the scheme no.toml: No such file"),
        (("run",), "bitl: There is no file out/icu/transitions.parquet; make one with: bitl icu build"),
        (
            ("synthesise", "--out", "new", "--format", "xls"),
            "bitl: The 'file_format' parameter must be one of 'csv.gz'",
        ),
    ],
)
def test_bad_commands_get_one_sentence(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bitl", "icu", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(sentence)
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == [], "nothing is written"


def test_an_interruption_leaves_nothing(top, tmp_path, monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bitl.icu.queries.treatments", interrupted)
    monkeypatch.setattr(sys, "argv", ["bitl", "icu", "build", "--mimic", str(top / "mimic")])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130
    assert capsys.readouterr().err == "bitl: interrupted; nothing was left half-written.\n"
    assert not [path for path in tmp_path.rglob("*") if path.is_file() or path.name.startswith(".")]


def test_bad_settings():
    with pytest.raises(DataError, match="The 'validation' parameter must be a number in"):
        few(validation=1.0)
    with pytest.raises(DataError, match="The 'method' parameter must be one of"):
        few(methods=("GUESS",))
    with pytest.raises(DataError, match="The study needs at least one epsilon"):
        few(epsilons=())
    with pytest.raises(DataError, match=r"The 'epsilon' parameter must be a number in \(0, inf\)"):
        few(epsilons=(0.0,))


def test_the_audit_can_show_small_counts(top, tmp_path):
    built = build(top / "mimic", scratch=tmp_path)
    for name, protect in (("shown", False), ("hidden", True)):
        write(built.batch, built.audit, tmp_path / f"{name}.parquet", protect=protect)
    assert "<10" in (tmp_path / "hidden.audit.md").read_text()
    assert "<10" not in (tmp_path / "shown.audit.md").read_text()
