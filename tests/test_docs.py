"""What the documentation says is what happens: its Python runs, its commands parse and succeed."""

import contextlib
import io
import re
import shlex
import shutil
import sys
import warnings
from pathlib import Path

import pytest

from bitl import cli

ROOT = Path(__file__).parents[1]
QUICK = {"sample": ["--draws", "40", "--rounds", "30"], "tune": ["--no-evidence"]}


def blocks(path, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / path).read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_tutorial_prints_what_it_says(here):
    text = (ROOT / "docs/tutorial.md").read_text()
    pairs = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(pairs) == len(blocks("docs/tutorial.md", "python")) == 2
    assert len([line for line in pairs[0][0].splitlines() if line.strip()]) <= 12, "about ten lines"
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of ArviZ about itself
        for code, output in pairs:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, names)  # noqa: S102
            assert printed.getvalue() == output


def commands(page):
    return [
        " ".join(line.removeprefix(".venv/bin/").split())
        for block in blocks(page, "sh")
        for line in block.replace("\\\n", " ").splitlines()
        if line.removeprefix(".venv/bin/").startswith("bitl ")
    ]


def test_the_commands_work_as_written(here, monkeypatch, capsys):
    lines = [*commands("docs/tutorial.md"), *commands("docs/howto/choosing-epsilon.md")]
    assert set(commands("README.md")) <= set(lines), "the readme shows what the tutorial explains"
    assert len(commands("README.md")) == 5
    for line in lines:
        words = shlex.split(line)
        monkeypatch.setattr(sys, "argv", [*words, *QUICK.get(words[1], [])])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert not end.value.code, line
    assert capsys.readouterr().err == ""


def test_the_example_table_is_what_its_script_makes(tmp_path):
    source = (ROOT / "examples" / "make_example.py").read_text()
    names: dict[str, object] = {"__name__": "made", "__file__": str(tmp_path / "x.py")}
    exec(compile(source, "make_example.py", "exec"), names)  # noqa: S102
    names["main"](tmp_path)  # type: ignore[operator]
    for name in ("ward.csv", "ward_reward.csv", "kidney_reward.csv"):
        assert (tmp_path / name).read_bytes().splitlines() == (ROOT / "examples" / name).read_bytes().splitlines(), name


def test_every_link_between_pages_leads_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            written_by_a_study = target.endswith("reproduction.md")
            if not target.startswith("http") and not written_by_a_study:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
