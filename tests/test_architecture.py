"""Imports point one way only, and importing the package stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bitl

SOURCE = Path(bitl.__file__).parent

# Every module may import what stands on an earlier line, and its own package.
LAYERS = [
    {"errors", "_types", "_version", "_kernels", "_kernels_itl", "_kernels_mce"},
    {"_kernels_smc"},
    {"_validate", "_files"},
    {"labels"},
    {"task"},
    {"transitions", "discretize"},
    {"tables", "environments"},
    {"planning"},
    {"expert"},
    {"constraints"},
    {"estimate"},
    {"estimators"},
    {"posterior"},
    {"metrics"},
    {"tuning"},
    {"worlds"},
    {"methods", "icu"},
    {"warmup"},
    {"report"},
    {"experiments", "analysis"},
    {"cli", "__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
HEAVY = (
    "pyarrow",
    "minari",
    "polars",
    "numba",
    "scipy",
    "matplotlib",
    "arviz",
    "pandas",
    "gymnasium",
    "jinja2",
    "typer",
    "rich",
)


def modules():
    return sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def component(path):
    """First part of a module's name below ``bitl``."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported(path, text=None):
    """Components of ``bitl`` that a file imports anywhere in it, late imports included; '' stands for bitl itself."""
    package = ("bitl", *path.relative_to(SOURCE).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(path.read_text() if text is None else text)):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for parts in names:
            if parts[0] == "bitl":
                name = parts[1] if len(parts) > 1 else ""
                found.add(name if name in RANK else "")
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    mine = component(path)
    assert mine in RANK, f"give {mine} a place in LAYERS"
    for name in imported(path):
        assert name, f"{mine} imports from the package itself; name the module that has what it needs"
        assert name == mine or RANK[name] < RANK[mine], f"{mine} must not import {name}"


def test_the_reader_of_imports_sees_every_form():
    path = SOURCE / "posterior" / "made_up.py"
    text = "import bitl.task\nfrom .. import cli\nfrom ..worlds.world import World\nfrom .regret import Regret\n"
    text += "def f():\n    from bitl.metrics import value\n    from bitl import plan\n    import numpy.random\n"
    assert imported(path, text) == {"task", "cli", "worlds", "posterior", "metrics", ""}


def test_the_kernels_stand_alone():
    """A cached compilation does not notice changes in another file; conftest.py looks after the one that could."""
    for path in SOURCE.glob("_kernels*.py"):
        assert imported(path) == ({"_kernels"} if path.stem == "_kernels_smc" else set())


def test_importing_bitl_imports_nothing_heavy():
    code = f"import sys, bitl; print([m for m in {HEAVY!r} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_public_names_exist():
    assert len(set(bitl.__all__)) == len(bitl.__all__)
    for name in bitl.__all__:
        assert getattr(bitl, name) is not None
    wanted = {"Task", "Transitions", "ExpertActions", "fit_mle", "sample_dirichlet", "sample_rejection", "certify"}
    assert wanted | {"plan", "evaluate", "metrics", "worlds", "Estimate", "Posterior"} <= set(bitl.__all__)
