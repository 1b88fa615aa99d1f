"""Your own table, end to end: every command in one process, on the example of the tutorial."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import bitl
from bitl import _validate, cli

arviz = _validate.arviz("This test")
EXAMPLES = Path(__file__).parents[2] / "examples"
COLUMNS = ["--episode-column", "stay", "--step-column", "hour"]
PROBLEM = ["--reward", "ward_reward.csv", "--discount", "0.9"]
CASE = ["ward.csv", *COLUMNS, *PROBLEM, "--epsilon", "0.8"]
SAMPLE = ["--draws", "78", "--rounds", "600"]


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line in this process; return exit code, output and errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["bitl", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of one's own with the example files in it."""
    for name in ("ward.csv", "ward_reward.csv", "kidney_reward.csv"):
        shutil.copy(EXAMPLES / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A folder with everything in it, made once."""
    folder = tmp_path_factory.mktemp("ward")
    for name in ("ward.csv", "ward_reward.csv", "kidney_reward.csv"):
        shutil.copy(EXAMPLES / name, folder)
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    for arguments in (["fit", *CASE, "--out", "case"], ["sample", *CASE, *SAMPLE, "--out", "case"]):
        patch.setattr(sys, "argv", ["bitl", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert not end.value.code
    patch.undo()
    return folder


@pytest.fixture
def copy(done, tmp_path, monkeypatch):
    """A copy of that folder to work in."""
    shutil.copytree(done, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "work"


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_inspect_says_what_was_understood(run, here):
    code, out, err = run("inspect", "ward.csv", *COLUMNS)
    assert (code, err) == (0, "")
    assert "840 rows, 780 transitions, 6 states, 4 actions, 60 episodes; next state derived" in out
    assert "decisions were recorded in 6 of 6 states" in out
    assert "both (14)" in out
    code, out, _ = run("inspect", "ward.csv", *COLUMNS, "--json", "--out", "seen")
    answer = json.loads(out)
    assert answer == json.loads((here / "seen" / "inspect.json").read_text())
    assert answer["data"]["transitions"] == 780
    assert answer["data"]["fingerprint"].startswith("sha256:")
    assert sum(row["decisions"] for row in answer["coverage"]) == 780


def test_inspect_lists_refused_rows_and_says_so_to_scripts(run, here):
    edit(here / "ward.csv", "stay-001,1,", "stay-001,0,")
    code, out, err = run("inspect", "ward.csv", *COLUMNS)
    assert code == 2
    assert "Refused: 1 row repeating an earlier row's episode and step (line 3)." in out
    assert "mend them, or go on without them" in err
    assert run("inspect", "ward.csv", *COLUMNS, "--drop-refused")[0] == 0


def test_fit_writes_what_anyone_can_read(done):
    with np.load(done / "case" / "estimate.npz", allow_pickle=False) as file:
        T, states, actions = file["T"], file["states"], file["actions"]
        assert str(file["method"]) == "ITL"
    assert (T.dtype, T.shape) == (np.float64, (6, 4, 6))
    assert states[0] == "low BP / kidneys failing"
    assert actions.tolist() == ["both", "fluids", "none", "vasopressor"]
    summary = json.loads((done / "case" / "summary.json").read_text())
    certificate = summary["fit"]["certificate"]
    assert (certificate["holds"], certificate["violations"], certificate["constraints"]) == (True, 0, 30)
    assert summary["fit"]["loss"] > 0
    assert summary["settings"]["epsilon"] == 0.8
    assert summary["versions"]["bitl"] == bitl.__version__
    assert summary["data"]["fingerprint"].startswith("sha256:")
    assert summary["commands"][0].startswith("bitl fit ward.csv --episode-column stay")


def test_sample_writes_what_arviz_reads(done):
    data = arviz.from_netcdf(str(done / "case" / "posterior.nc"))
    assert data.posterior["T"].dims == ("chain", "draw", "state", "action", "next_state")
    assert data.posterior.sizes["chain"] * data.posterior.sizes["draw"] == 80
    table = arviz.summary(data, var_names=["V"])
    assert len(table) == 6
    sample = json.loads((done / "case" / "summary.json").read_text())["sample"]
    assert (sample["violations"], sample["draws_without_violation"]) == (0.0, 80)
    assert sample["rhat"] > 0.9
    assert sample["ess"] > 10
    assert sample["log_evidence"] < 0
    assert sample["log_evidence_se"] > 0
    assert sample["seed"] == 0
    data.close()


@pytest.mark.parametrize(("method", "name"), [("mle", "MLE"), ("mce", "MCE"), ("joint", "ITL-No-R")])
def test_fit_other_methods(run, here, method, name):
    code, out, err = run("fit", *CASE, "--method", method, "--json", "--out", method)
    assert (code, err) == (0, "")
    answer = json.loads(out)["fit"]
    assert answer["method"] == name
    assert answer["certificate"]["constraints"] == 30
    assert (answer["certificate"]["violations"] > 0) == (method == "mle")
    assert ("reward" in answer) == (method == "joint")
    assert (here / method / "estimate.npz").exists()


def test_the_same_seed_gives_the_same_draws(run, here, done):
    assert run("sample", *CASE, *SAMPLE, "--out", "again")[0] == 0
    a, b = (arviz.from_netcdf(str(f / "posterior.nc")) for f in (done / "case", here / "again"))
    np.testing.assert_array_equal(a.posterior["T"].values, b.posterior["T"].values)


def test_tune_by_matching_and_by_evidence(run, here):
    arguments = ["tune", "ward.csv", *COLUMNS, *PROBLEM, "--epsilon", "0.4", "--epsilon", "0.8", "--epsilon", "30"]
    arguments += ["--folds", "3", "--rounds", "40", "--transfer", "kidney_reward.csv", "--out", "tuned"]
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert "Held-out matching, 3 folds by episode" in out
    assert "epsilon 30: " in out, "why an epsilon has no model is said"
    answer = json.loads((here / "tuned" / "tune.json").read_text())["tune"]
    assert answer["by_matching"] in (0.4, 0.8)
    assert answer["by_evidence"] in (0.4, 0.8)
    assert [row["epsilon"] for row in answer["table"]] == [0.4, 0.8, 30.0]
    assert answer["table"][0]["best_matching_kidney_reward"] >= 0
    assert (here / "tuned" / "tune.csv").read_text().count("\n") == 4
    assert (here / "tuned" / "tune.png").stat().st_size > 10_000


def test_tune_chooses_epsilons_where_none_are_given(run, here):
    code, out, _ = run("tune", "ward.csv", *COLUMNS, *PROBLEM, "--no-evidence", "--json")
    answer = json.loads(out)["tune"]
    assert code == 0
    assert len(answer["table"]) == 8
    assert answer["by_evidence"] is None


def test_transfer_gives_a_verdict_with_its_basis(run, copy):
    code, out, err = run("transfer", "case", "--reward", "kidney_reward.csv")
    assert (code, err) == (0, "")
    assert "Where the best action changes for kidney_reward" in out
    assert "Bayesian regret" in out
    assert "for the experts' own goal it is" in out
    answer = json.loads((copy / "case" / "transfer-kidney-reward.json").read_text())["transfer"]
    assert answer["verdict"] == "no"
    assert answer["regret"]["share"] > 5 * answer["regret_training"]["share"]
    assert {row["state"] for row in answer["policy"] if row["differs"]} == set(answer["differs"])
    lines = (copy / "case" / "transfer-kidney-reward.csv").read_text().splitlines()
    assert len(lines) == 7
    code, out, _ = run("transfer", "case", "--reward", "ward_reward.csv", "--json")
    same = json.loads(out)["transfer"]
    assert same["verdict"] == "yes"
    assert same["differs"] == []
    assert set(json.loads((copy / "case" / "summary.json").read_text())["transfer"]) == {"kidney_reward", "ward_reward"}


def test_whatif_compares_methods(run, copy):
    question = ["whatif", "case", "--state", "low BP / kidneys ok", "--action", "none"]
    code, out, err = run(*question)
    assert (code, err) == (0, "")
    assert "never seen in 88 visits" in out
    file = copy / "case" / "whatif-low-bp-kidneys-ok-none.json"
    rows = json.loads(file.read_text())["whatif"]["next_states"]
    assert [row["method"] for row in rows[:: len(rows) // 4]] == ["MLE", "PS", "ITL", "BITL"]
    for method in ("MLE", "PS", "ITL", "BITL"):
        assert sum(row["probability"] for row in rows if row["method"] == method) == pytest.approx(1)
    assert all((row["low"] is None) == (row["method"] in ("MLE", "ITL")) for row in rows)
    assert file.with_suffix(".png").stat().st_size > 10_000
    code, _, err = run("whatif", "case", "--state", "asleep", "--action", "none")
    assert code == 2
    assert "There is no state named 'asleep'; the data has 'low BP / kidneys failing'" in err


def test_the_report_judges_a_transfer_by_the_latest_draws(run, copy):
    """Asked before there was a posterior, the answer was that it cannot be told; that is no longer so."""
    summary = json.loads((copy / "case" / "summary.json").read_text())
    sample = summary.pop("sample")
    (copy / "case" / "summary.json").write_text(json.dumps(summary))
    assert "There is no posterior" in run("transfer", "case", "--reward", "kidney_reward.csv")[1]
    summary = json.loads((copy / "case" / "summary.json").read_text())
    (copy / "case" / "summary.json").write_text(json.dumps({**summary, "sample": sample}))
    assert run("report", "case")[0] == 0
    page = (copy / "case" / "report.html").read_text()
    assert "There is no posterior" not in page
    assert "Bayesian regret" in page


def test_answers_about_names_that_look_alike_have_files_of_their_own(run, here):
    for name in ("ward.csv", "ward_reward.csv"):
        text = (
            (here / name)
            .read_text()
            .replace("very low BP / kidneys ok", "давление: низкое")
            .replace("low BP / kidneys ok", "BP-")
        )
        (here / name).write_text(
            text.replace("normal BP / kidneys ok", "BP+").replace("low BP / kidneys failing", "высокое")
        )
    assert run("fit", *CASE, "--method", "mle", "--out", "case")[0] == 0
    for state in ("BP-", "BP+", "давление: низкое", "высокое"):
        assert run("whatif", "case", "--state", state, "--action", "none")[0] == 0
    names = {json.loads(p.read_text())["whatif"]["state"]: p.name for p in (here / "case").glob("whatif-*.json")}
    assert names == {
        "BP+": "whatif-bp-1-none.json",
        "BP-": "whatif-bp-2-none.json",
        "давление: низкое": "whatif-давление-низкое-none.json",
        "высокое": "whatif-высокое-none.json",
    }


def test_report_stands_alone(run, copy):
    run("transfer", "case", "--reward", "kidney_reward.csv", "--name", "kidneys first")
    run("whatif", "case", "--state", "low BP / kidneys ok", "--action", "none")
    code, out, err = run("report", "case")
    assert (code, err) == (0, "")
    assert out == "Written to case: report.html\n"
    page = (copy / "case" / "report.html").read_text()
    assert not re.search(r'(src|href)="(?!data:)', page), "nothing is fetched"
    assert "http" not in page
    for words in (
        "780 recorded decisions in 60 episodes",
        "every recorded choice of the experts is within 0.8 of the best",
        "the model would do what they do",
        "Where is the model least sure?",
        "kidneys first",
        "After “none” in “low BP / kidneys ok”",
        "Agreement of runs",
        "bitl sample ward.csv",
        "sha256:",
    ):
        assert words in page, words
    assert re.search(r'class="light (look|stop)">[▲✖] (look|stop)', page), "signs and words, not colour alone"


def test_report_of_an_estimate_alone_says_what_is_missing(run, here):
    """And labels are text whatever they hold: markup in them is neither run by the terminal nor by the page, nor
    are dollars formulas in the figures."""
    for name in ("ward.csv", "ward_reward.csv"):
        text = (here / name).read_text().replace("low BP / kidneys ok", "[red]<script>alert(1)</script> $5 \\frac $9")
        (here / name).write_text(text)
    assert "[red]<script>" in run("inspect", "ward.csv", *COLUMNS)[1]
    assert run("fit", *CASE, "--out", "case")[0] == 0
    assert run("report", "case", "--out", "elsewhere")[0] == 0
    page = (here / "elsewhere" / "report.html").read_text()
    assert "<script>" not in page
    assert "That takes a posterior" in page
    assert "– not done" in page
    assert run("fit", *CASE, "--out", "case", "--json")[0] == 0, "the same case again"
    (here / "new.csv").write_text((here / "ward_reward.csv").read_text())
    code, out, _ = run("transfer", "case", "--reward", "new.csv")
    assert code == 0
    assert "It cannot be told whether the model serves the new goal." in out
