"""The how-tos do what they say: their code is taken from the page and run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path):
    (module,) = blocks("howto/own-method.md", "python")
    (tmp_path / "my_methods.py").write_text(module)
    return tmp_path


def test_a_method_of_ones_own_enters_every_table(folder):
    (command,) = blocks("howto/own-method.md", "console")
    words = shlex.split(command.removeprefix("$ "))
    assert words[:4] == ["PYTHONPATH=.", "bitl", "reproduce", "synthetic"]
    call = [sys.executable, "-c", "import sys; sys.path.insert(0, '.'); from bitl.cli import main; main()", *words[2:]]
    call += ["--stochastic", "20", "--workers", "1"]
    answer = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    for name in ("stochastic20-gridworld.md", "stochastic20-randomworld.md"):
        head, *lines = (folder / "out" / "reproduce" / "tables" / name).read_text().splitlines()
        assert head == "|  | ITL | MLE | Halfway |"
        assert len(lines) > 10
    picture = (folder / "out" / "reproduce" / "figures" / "coverage-stochastic20.svg").read_text()
    assert "Halfway" in picture
    again = subprocess.run([*call, "--method", "PS"], cwd=folder, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    folders = sorted(path.name.split("-")[0] for path in (folder / "out" / "reproduce" / "synthetic").iterdir())
    assert folders == ["halfway", "itl", "mle", "ps"], "adding a method computes that method alone"


def test_a_plugin_that_is_not_there_is_named(tmp_path):
    call = [
        sys.executable,
        "-c",
        "from bitl.cli import main; main()",
        "reproduce",
        "synthetic",
        "--plugin",
        "no_such_module",
    ]
    answer = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith("bitl: Cannot import the plugin no_such_module: ")
