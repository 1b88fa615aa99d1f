"""The command line end to end, as a user meets it: in a process of its own."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from bitl import __version__, methods


def bitl(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = "from bitl.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return bitl("demo", "--draws", "50", "--rounds", "40", cwd=folder), folder / "out"


def test_version(tmp_path):
    assert bitl("--version", cwd=tmp_path).stdout == f"bitl {__version__}\n"


def test_demo_shows_every_method(demo):
    result, _ = demo
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    for name in methods.methods():
        assert f"{name}: " in result.stdout, "each method says how many constraints it violates"
    assert "transfer: value" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80, "nothing is cut off in a narrow terminal"


def test_demo_writes_a_report_that_stands_alone(demo):
    _, out = demo
    assert sorted(path.name for path in out.iterdir()) == [
        "bands.png",
        "bands.svg",
        "metrics.csv",
        "policies.png",
        "policies.svg",
        "report.html",
        "values.png",
        "values.svg",
    ]
    page = (out / "report.html").read_text()
    assert page.count('src="data:image/png;base64,') == 3
    assert "http" not in page
    assert "bitl demo --epsilon 3 --coverage 0.6 --draws 50 --rounds 40 --seed 0" in page


def test_demo_metrics_are_numbers(demo):
    _, out = demo
    with (out / "metrics.csv").open() as file:
        rows = {row["metric"]: row for row in csv.DictReader(file)}
    assert float(rows["violations"]["MLE"]) > 0
    assert 0 <= float(rows["best_matching"]["PS"]) <= 1
    assert rows["bayesian_regret"]["MLE"] == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--coverage", "0"], "The 'coverage' parameter must be a number in (0, 1]. Got 0.0 instead."),
        (["--epsilon", "-1"], "The 'epsilon' parameter must be a number in [0, inf). Got -1.0 instead."),
        (["--seed", "-1"], "The 'seed' parameter must be a whole number of at least 0. Got -1 instead."),
        (["--draws", "0"], "The 'draws' parameter must be a whole number of at least 1. Got 0 instead."),
    ],
)
def test_bad_options_get_one_sentence(arguments, sentence, tmp_path):
    result = bitl("demo", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr == f"bitl: {sentence}\n"
    assert not (tmp_path / "out").exists(), "nothing is written for a run that failed"


def test_unwritable_folder_gets_one_sentence(tmp_path):
    (tmp_path / "file").write_text("mine")
    result = bitl("demo", "--draws", "10", "--rounds", "20", "--out", "file/out", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("bitl: Cannot write to file/out: ")
    assert "Traceback" not in result.stderr
    assert (tmp_path / "file").read_text() == "mine"
