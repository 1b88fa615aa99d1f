"""Whatever is wrong gets one sentence and exit code 2, and nothing is lost."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from test_own_data import CASE, COLUMNS, PROBLEM, SAMPLE, copy, done, edit, here, run  # noqa: F401

FIT = ["fit", *CASE, "--out", "case"]


def refused(answer, words):
    code, _, err = answer
    assert code == 2, answer
    assert err.startswith("bitl: ")
    assert err.count("\n") == 1, "one sentence, one line"
    assert words in err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("both\n", "boht\n", "The action 'boht' appears only once, in line 2 of ward.csv and may be a typo of 'both'"),
        ("stay-001,1,", "stay-001,0,", "1 row repeating an earlier row's episode and step (line 3)"),
        ("both\n", "\n", "1 row without an action (line 2)"),
        ("both\n", "NaN\n", "1 row without an action (line 2)"),
        (",both\n", "\n", "1 row with too few or too many fields (line 2)"),
    ],
)
def test_bad_rows(run, here, old, new, words):  # noqa: F811
    edit(here / "ward.csv", old, new)
    refused(run(*FIT), words)
    assert not (here / "case").exists(), "nothing is left of a run that failed"


def test_bad_rows_can_be_left_out_or_kept(run, here):  # noqa: F811
    edit(here / "ward.csv", "both\n", "boht\n")
    edit(here / "ward.csv", "stay-002,1,", "stay-002,0,")
    assert run(*FIT, "--drop-refused", "--keep-rare")[0] == 0
    about = json.loads((here / "case" / "summary.json").read_text())["data"]
    assert about["refused"][0]["lines"] == [17]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ward.csv is empty"),
        ("stay,hour,state,action\n", "ward.csv is empty: there is no row below the header"),
        ("stay,hour,state,action\n1,0,-1,2\n1,1,3,2\n1,2,3,2\n", "1 row with a negative state (line 2)"),
        ("stay,hour,state,action\n1,0,5,2\n", "ward.csv has no usable transition"),
    ],
)
def test_bad_tables(run, here, text, words):  # noqa: F811
    (here / "ward.csv").write_text(text)
    refused(run(*FIT), words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--reward", "kidneys"], "'kidneys' is neither a file nor a column of ward.csv"),
        (["--reward", "hour"], "The reward column must be constant per state"),
        (["--reward", "column:pay"], "There is no column 'pay' for the reward"),
        (["--discount", "1"], "The 'discount' parameter must be a number in [0, 1). Got 1.0 instead."),
        (["--epsilon", "0"], "At epsilon = 0 the valid actions of a state would have to be exactly equal"),
        (["--epsilon", "nan"], "The 'epsilon' parameter must be a number in [0, inf)"),
        (["--epsilon", "40"], "epsilon"),
        (["--method", "magic"], "There is no method 'magic'; the methods are mle, itl"),
        (["--method", "ps"], "PS is a posterior: use bitl sample --method ps."),
        (["--start", "home"], "The 'start' parameter must be one of 'uniform', 'episodes'"),
        (["--expert-share", "2"], "The 'share' parameter must be a number in (0, 1]"),
        (["--state-column", "ward"], "There is no column 'ward' for the state; the table has 'stay', 'hour'"),
    ],
)
def test_bad_options(run, here, arguments, words):  # noqa: F811
    refused(run(*FIT, *arguments), words)


def test_rewards_that_do_not_fit(run, here):  # noqa: F811
    edit(here / "ward_reward.csv", "very low BP / kidneys ok,2\n", "")
    refused(run(*FIT), "ward_reward.csv has no reward for the state 'very low BP / kidneys ok'; add a line")
    (here / "hour").write_text("state,reward\n0,1\n")
    refused(run(*FIT, "--reward", "hour"), "'hour' is both a file and a column of ward.csv; write --reward ./hour")


def test_a_reward_column_needs_a_value_for_every_state(run, here):  # noqa: F811
    rows = [("1", "a", "x", "b", 0), ("1", "b", "x", "c", 1), ("2", "a", "y", "b", 0), ("2", "b", "y", "b", 1)]
    lines = ["episode,state,action,next_state,pay", *(",".join(map(str, row)) for row in rows)]
    (here / "t.csv").write_text("\n".join(lines))
    arguments = ["fit", "t.csv", "--reward", "pay", "--discount", "0.5", "--epsilon", "0.1"]
    refused(run(*arguments), "The column 'pay' has no reward for the state 'c', in which no decision was recorded")
    edit(here / "t.csv", "x,c", "x,b")
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    assert json.loads(out)["data"]["columns"]["reward"] == "pay"


def test_names_that_no_file_can_have(run, here):  # noqa: F811
    name = "x" * 300
    refused(run(*FIT[:-1], name), f"Cannot write to {name}: File name too long; choose another folder.")
    refused(run(*FIT, "--reward", name), f"The reward file {name} cannot be read: File name too long.")
    refused(run("inspect", f"{name}.csv"), f"{name}.csv cannot be read: File name too long.")


def test_labels_in_error_messages_are_not_markup(run, here):  # noqa: F811
    edit(here / "ward.csv", "low BP / kidneys ok", "[/b] :x:")
    refused(run(*FIT), "has no reward for the state 'very [/b] :x:'; add a line")
    assert ":x:" in run("inspect", "ward.csv", *COLUMNS)[1]


def test_unwritable_output(run, here):  # noqa: F811
    (here / "file").write_text("mine")
    for arguments in (
        FIT[:-1],
        ["inspect", "ward.csv", *COLUMNS, "--out"],
        ["tune", "ward.csv", *COLUMNS, *PROBLEM, "--out"],
    ):
        refused(run(*arguments, "file/case"), "Cannot write to file/case: Not a directory; choose another folder.")
    assert (here / "file").read_text() == "mine"


@pytest.mark.parametrize("command", ["transfer", "whatif", "report"])
def test_data_that_changed_since(run, copy, command):  # noqa: F811
    more = {
        "transfer": ["--reward", "kidney_reward.csv"],
        "whatif": ["--state", "low BP / kidneys ok", "--action", "none"],
        "report": [],
    }[command]
    edit(copy / "ward.csv", "both\n", "none\n")
    refused(run(command, "case", *more), "The data file ward.csv changed since case was written; fit and sample again")
    if command == "transfer":
        assert run(command, "case", *more, "--changed-data")[0] == 0
        (copy / "ward.csv").unlink()
        code, out, _ = run(command, "case", *more)
        assert code == 0, "the folder is complete without the data"
        assert "The data file ward.csv is not where it was" in out


def test_another_case_is_not_overwritten(run, copy):  # noqa: F811
    before = {path.name: path.read_bytes() for path in (copy / "case").iterdir()}
    refused(run(*FIT, "--epsilon", "0.5"), "case was written with epsilon 0.8, not 0.5; choose another folder")
    refused(run(*FIT, "--method", "mle"), "case already holds ITL; choose another folder for MLE, or add --replace.")
    edit(copy / "ward.csv", "both\n", "vasopressor\n")
    refused(run(*FIT), "The data changed since case was written; choose another folder, or add --replace")
    assert {path.name: path.read_bytes() for path in (copy / "case").iterdir()} == before
    assert run(*FIT, "--epsilon", "0.5", "--replace")[0] == 0
    summary = json.loads((copy / "case" / "summary.json").read_text())
    assert summary["settings"]["epsilon"] == 0.5
    assert "sample" not in summary
    assert not (copy / "case" / "posterior.nc").exists()


def test_a_run_that_fails_changes_nothing(run, copy):  # noqa: F811
    refused(run("fit", *CASE, "--epsilon", "40", "--out", "new"), "No model satisfies the constraints at epsilon = 40")
    assert not (copy / "new").exists(), "so that the next try, with another epsilon, may go there"
    before = {path.name: path.read_bytes() for path in (copy / "case").iterdir()}
    refused(run(*FIT, "--epsilon", "40", "--replace"), "No model satisfies the constraints")
    assert {path.name: path.read_bytes() for path in (copy / "case").iterdir()} == before


def test_two_reward_columns_are_two_cases(run, here):  # noqa: F811
    rows = ["episode,state,action,next_state,pay,fee"]
    rows += ["1,a,x,b,0,2", "1,b,x,b,1,0", "2,a,y,b,0,2", "2,b,y,b,1,0"]
    (here / "t.csv").write_text("\n".join(rows))
    arguments = ["fit", "t.csv", "--discount", "0.5", "--epsilon", "3", "--method", "mle", "--out", "case"]
    assert run(*arguments, "--reward", "pay")[0] == 0
    assert run(*arguments, "--reward", "column:pay")[0] == 0, "the same by another name"
    refused(run(*arguments, "--reward", "fee"), 'case was written with the reward column "pay", not "fee"; choose')


def test_a_file_of_the_same_name_elsewhere_is_not_the_data(run, copy, monkeypatch):  # noqa: F811
    (copy / "desk").mkdir()
    (copy / "desk" / "ward.csv").write_text("another table")
    monkeypatch.chdir(copy / "desk")
    assert run("transfer", "../case", "--reward", "../kidney_reward.csv", "--out", "answer")[0] == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("estimate.npz", "case/estimate.npz cannot be read"),
        ("posterior.nc", "case/posterior.nc cannot be read"),
        ("problem.npz", "case/problem.npz cannot be read"),
        ("summary.json", "case/summary.json cannot be read"),
    ],
)
def test_half_written_files(run, copy, name, words):  # noqa: F811
    content = (copy / "case" / name).read_bytes()
    (copy / "case" / name).write_bytes(content[: len(content) // 3])
    refused(run("report", "case"), words)


def test_nothing_is_unpickled(run, copy):  # noqa: F811
    import numpy as np

    np.savez(
        copy / "case" / "estimate.npz", T=np.array([{"a": 1}], dtype=object), states=[""], actions=[""], method="x"
    )
    refused(run("report", "case"), "case/estimate.npz cannot be read (Object arrays cannot be loaded when allow_pickle")


def test_folders_of_another_version(run, copy):  # noqa: F811
    edit(copy / "case" / "summary.json", '"format": 1', '"format": 0')
    refused(run("report", "case"), "case/summary.json was written by another version of bitl; run bitl fit or")


def test_folders_that_are_no_cases(run, here):  # noqa: F811
    refused(run("report", "nowhere"), "There is no folder nowhere; make one with bitl fit or bitl sample")
    (here / "empty").mkdir()
    refused(
        run("report", "empty"), "empty has no summary.json: it is not a folder of bitl fit or bitl sample, or that run"
    )
    refused(run("transfer", "empty", "--reward", "x.csv"), "empty has no summary.json")


def test_an_interrupted_run_leaves_what_was_there(copy):  # noqa: F811
    """Ctrl-C in the middle of sampling: one sentence, and the old posterior is still whole."""
    before = {path.name: path.read_bytes() for path in (copy / "case").iterdir()}
    command = [
        sys.executable,
        "-c",
        "from bitl.cli import main; print('ready', flush=True); main()",
        "sample",
        *CASE,
        "--out",
        "case",
    ]
    command += ["--draws", "4000", "--rounds", "80000", "--seed", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(2)
    assert process.poll() is None, "it is still at work"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err == "bitl: interrupted; nothing was left half-written.\n"
    assert {path.name: path.read_bytes() for path in (copy / "case").iterdir()} == before


def test_sampling_draws_that_are_too_few_to_judge(run, here):  # noqa: F811
    code, out, _ = run("sample", *CASE, "--draws", "1", "--rounds", "10", "--json")
    assert code == 0
    sample = json.loads(out)["sample"]
    assert sample["rhat"] is None
    assert "single run" in sample["warnings"][0]
    refused(run("sample", *CASE, *SAMPLE, "--method", "itl"), "ITL is an estimate: use bitl fit --method itl.")
