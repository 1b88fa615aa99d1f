"""The synthetic study: results do not depend on who computes them, when, or how often it was interrupted."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bitl.errors import DataError
from bitl.experiments.engine import LocalEngine
from bitl.experiments.published import published_numbers
from bitl.experiments.store import COLUMNS, Store
from bitl.experiments.synthetic import How, Size, Unit, batch_of, compute, leaves_support, units, world_of
from bitl.experiments.tables import Cell, synthetic_tables
from bitl.expert import ExpertActions

TINY = ["--stochastic", "0", "--datasets", "1", "--worlds", "1", "--per-world", "1", "--sweep", "1"]
TINY += ["--draws", "8", "--particles", "10", "--workers", "1"]


def start(folder, *arguments):
    command = [sys.executable, "-c", "from bitl.cli import main; main()", "reproduce", "synthetic", *TINY, *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def tables(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "out" / "reproduce" / "tables").iterdir())}


def test_a_killed_run_resumes_and_ends_with_the_same_tables(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    undisturbed = start(whole)
    victim = start(broken)
    deadline = time.monotonic() + 120
    while len(list(broken.glob("out/reproduce/synthetic-*/units/level*.parquet"))) < 3:
        assert victim.poll() is None, victim.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    before = {path: path.stat().st_mtime_ns for path in broken.glob("out/reproduce/synthetic-*/units/level*.parquet")}
    again = start(broken)
    assert again.wait(timeout=200) == 0, again.stderr.read()
    assert undisturbed.wait(timeout=200) == 0, undisturbed.stderr.read()
    for process in (again, undisturbed):
        process.communicate()
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items()), "what was done is not done again"
    assert tables(broken) == tables(whole)
    assert "stochastic0-gridworld.md" in tables(whole)


def test_processes_give_the_same_rows_as_this_one():
    todo = units(Size(("40",), 1, 0, 0, 0), How(draws=8, particles=10))
    assert [unit.key for unit in todo] == ["level40-gridworld-coverage000-000"]
    ((_, other),) = LocalEngine(2).results(compute, todo)
    keep = [row for row in compute(todo[0]) if row[6] != "seconds"]
    assert [row for row in other if row[6] != "seconds"] == keep
    assert {row[5] for row in keep} == {"MLE", "ITL", "MCE", "PS", "BITL"}
    violations = {row[5]: row[7] for row in keep if row[6] == "violations"}
    assert violations["ITL"] == violations["BITL"] == 0 < violations["MLE"]


def test_sizes_of_the_paper():
    todo = units(Size(), How())
    rollouts = [unit for unit in todo if unit.coverage == 0]
    assert len(rollouts) == 3 * (100 + 10 * 50)
    assert len({unit.key for unit in todo}) == len(todo)
    assert len(todo) - len(rollouts) == 3 * 5 * (20 + 10 * 2)


def test_batches_are_the_two_kinds_of_the_paper():
    unit = Unit("40", "randomworld-03", 0, 0.0, How())
    world, epsilon = world_of(unit)
    assert len(batch_of(unit, world, epsilon)) == 30
    assert ExpertActions.epsilon_optimal(world.T, world.task, epsilon).stochastic.sum() == 6
    again, _ = world_of(Unit("20", "randomworld-03", 5, 0.4, How()))
    np.testing.assert_array_equal(world.T, again.T)
    half = batch_of(Unit("0", "gridworld", 0, 0.4, How()), *world_of(Unit("0", "gridworld", 0, 0.4, How())))
    assert len(half) == 10 * 10, "10 of 25 states, one action each, 10 transitions"


def test_leaving_the_support_by_hand():
    expert = ExpertActions(np.array([[True, False], [False, False]]))
    assert leaves_support(np.array([[1.0, 0.0], [0.0, 1.0]]), expert) == 0.0
    assert leaves_support(np.array([[0.5, 0.5], [0.0, 1.0]]), expert) == 1.0


def rows(values, metric, method="ITL", world="gridworld", coverage=0.0):
    return [("synthetic", "40", world, i, coverage, method, metric, v) for i, v in enumerate(values)]


def test_tables_set_ours_beside_the_papers():
    data = rows([0.6, 0.8], "best_matching") + rows([0.0, 9.9], "best_matching", coverage=0.4)
    data += rows(np.arange(200.0), "value")
    (table,) = synthetic_tables(data)
    cells = {label: cells[0] for label, cells in table.rows}
    best = cells["best matching"]
    assert (best.mean, best.published_mean, best.published_sd) == (pytest.approx(0.7), 0.56, 0.11)
    assert best.difference == pytest.approx((0.7 - 0.56) / 0.11)
    assert cells["value CVaR 1 %"].mean == 0.5, "the mean of the worst two of 200"
    assert "| best matching | 0.70 ± 0.10 (paper 0.56 ± 0.11, +1.3 sd) |" in table.markdown()
    assert r"best matching & $0.70 \pm 0.10$ (0.56) \\" in table.latex()
    assert "best matching,ITL,0.7,0.1,0.56,0.11,1.272727273" in table.csv()


def test_a_published_zero_spread_has_no_difference():
    assert Cell(1.0, 0.1, 0.0, 0.0).difference is None
    assert str(Cell(1.0, 0.1)) == "1.00 ± 0.10"


def test_all_published_numbers_are_there():
    assert len(published_numbers()) == 409
    key = ("stochastic40", "gridworld", "standard", "constraints_violated", "MLE")
    assert published_numbers()[key] == (23.13, 6.59)


def test_settings_never_mix(tmp_path):
    one, two = (Store(tmp_path, "synthetic", {"seed": seed}) for seed in (0, 1))
    row = ("synthetic", "40", "gridworld", 0, 0.0, "ITL", "value", 1.0)
    one.put("unit", [row])
    assert one.done() == {"unit"}
    assert two.done() == set()
    assert Store(tmp_path, "synthetic", {"seed": 0}).rows(["unit"]) == [row]
    assert len(row) == len(COLUMNS)


def test_a_damaged_unit_is_named(tmp_path):
    store = Store(tmp_path, "synthetic", {})
    path = store.path / "units" / "unit.parquet"
    path.parent.mkdir()
    path.write_bytes(b"half of it")
    with pytest.raises(DataError, match=r"Cannot read .*unit\.parquet: .*; delete it and run again\."):
        store.rows(["unit"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["everything"], "The 'what' parameter must be one of 'synthetic', 'joint'. Got 'everything' instead."),
        (
            ["synthetic", "--stochastic", "30"],
            "The 'stochastic' parameter must be one of '40', '20', '0'. Got '30' instead.",
        ),
    ],
)
def test_bad_options_get_one_sentence(arguments, sentence, tmp_path):
    command = [sys.executable, "-c", "from bitl.cli import main; main()", "reproduce", *arguments]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr == f"bitl: {sentence}\n"
