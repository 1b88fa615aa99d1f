"""The synthetic study: results do not depend on who computes them, when, or how often it was interrupted."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import bitl
from bitl.errors import DataError
from bitl.experiments import epsilon, feasible_region, figures, fingerprint, joint
from bitl.experiments import unit as unit_module
from bitl.experiments.engine import LocalEngine
from bitl.experiments.published import published_numbers
from bitl.experiments.store import COLUMNS, Store
from bitl.experiments.synthetic import Size, batch_of, compute, leaves_support, units, world_of
from bitl.experiments.tables import Cell, joint_tables, synthetic_tables
from bitl.experiments.unit import How, Unit
from bitl.expert import ExpertActions
from bitl.report import curves

TEMPERING = fingerprint.ROOT / "posterior" / "tempering.py"
TINY = ["--stochastic", "0", "--datasets", "1", "--worlds", "1", "--per-world", "1", "--sweep", "1"]
TINY += [
    "--draws",
    "8",
    "--rounds",
    "10",
    "--workers",
    "1",
    "--method",
    "MLE",
    "--method",
    "ITL",
    "--method",
    "BITL",
]


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
    while len(list(broken.glob("out/reproduce/synthetic/*/level*.parquet"))) < 8:
        assert victim.poll() is None, victim.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    before = {path: path.stat().st_mtime_ns for path in broken.glob("out/reproduce/synthetic/*/level*.parquet")}
    again = start(broken)
    assert again.wait(timeout=200) == 0, again.stderr.read()
    assert undisturbed.wait(timeout=200) == 0, undisturbed.stderr.read()
    for process in (again, undisturbed):
        process.communicate()
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items()), "what was done is not done again"
    assert tables(broken) == tables(whole)
    assert "stochastic0-gridworld.md" in tables(whole)


def test_workers_end_with_the_process_that_started_them():
    """Workers inherit its output, which therefore ends only when they have ended too."""
    work = """
from bitl.experiments.engine import LocalEngine

if __name__ == "__main__":
    for _ in LocalEngine(2).results(eval, ["0", "0", "__import__('time').sleep(300)"]):
        print("begun", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout.readline() == "begun\n"
        victim.kill()
        victim.communicate(timeout=30)


def test_the_page_names_the_command_that_wrote_it(tmp_path):
    given = "--stochastic 0 --method MLE --datasets 1 --worlds 0 --sweep 0"
    command = [sys.executable, "-c", "from bitl.cli import main; main()", "reproduce", "synthetic", *given.split()]
    subprocess.run([*command, "--workers", "1", "--page", "page.md"], cwd=tmp_path, check=True, capture_output=True)
    assert f"Written by `bitl reproduce synthetic {given}`" in (tmp_path / "page.md").read_text()


def untimed(found):
    return [row for row in found if row[6] != "seconds"]


def test_processes_give_the_same_rows_as_this_one():
    todo = units(Size(("40",), 1, 0, 0, 0), How(draws=8, rounds=10))
    assert {unit.key for unit in todo} == {"level40-gridworld-coverage000-000"}
    here = {unit.method: untimed(compute(unit)) for unit in todo}
    assert {unit.method: untimed(found) for unit, found in LocalEngine(2).results(compute, todo)} == here
    keep = [row for found in here.values() for row in found]
    assert {row[5] for row in keep} == {"MLE", "ITL", "MCE", "PS", "BITL"}
    violations = {row[5]: row[7] for row in keep if row[6] == "violations"}
    assert violations["ITL"] == violations["BITL"] == 0 < violations["MLE"]


def test_sizes_of_the_paper():
    todo = units(Size(), How())
    rollouts = [unit for unit in todo if unit.coverage == 0]
    assert len(rollouts) == 5 * 3 * (100 + 10 * 50), "five methods, three levels"
    assert len({(unit.method, unit.key) for unit in todo}) == len(todo)
    assert len(todo) - len(rollouts) == 5 * 3 * 5 * (20 + 10 * 2)
    assert len(units(Size(), How(), ["MLE", "ITL"])) == len(todo) * 2 // 5


def unit_of(level="40", world="gridworld", dataset=0, coverage=0.0, method="ITL", **how):
    return Unit("synthetic", level, world, dataset, coverage, method, How(**how))


def test_batches_are_the_two_kinds_of_the_paper():
    unit = unit_of("40", "randomworld-03", 0, 0.0)
    world, epsilon = world_of(unit)
    assert len(batch_of(unit, world, epsilon)) == 30
    assert ExpertActions.epsilon_optimal(world.T, world.task, epsilon).stochastic.sum() == 6
    again, _ = world_of(unit_of("20", "randomworld-03", 5, 0.4))
    np.testing.assert_array_equal(world.T, again.T)
    small = unit_of("0", "gridworld", 0, 0.4)
    half = batch_of(small, *world_of(small))
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


def test_a_method_that_has_seen_fewer_batches_is_named():
    (table,) = synthetic_tables(rows([1.0, 2.0, 3.0], "value") + rows([1.0], "value", method="BITL"))
    assert table.title == "gridworld, 40 % stochastic-policy states, 3 batches, BITL on 1 of them (mean ± sd)"


def test_a_published_zero_spread_has_no_difference():
    assert Cell(1.0, 0.1, 0.0, 0.0).difference is None
    assert str(Cell(1.0, 0.1)) == "1.00 ± 0.10"


def test_all_published_numbers_are_there():
    assert len(published_numbers()) == 409
    key = ("stochastic40", "gridworld", "standard", "constraints_violated", "MLE")
    assert published_numbers()[key] == (23.13, 6.59)


def test_settings_never_mix(tmp_path):
    store = Store(tmp_path, "synthetic")
    row = ("synthetic", "40", "gridworld", 0, 0.0, "ITL", "value", 1.0)
    store.put(unit_of(), [row])
    assert store.missing([unit_of(), unit_of(seed=1), unit_of(dataset=1)]) == [unit_of(seed=1), unit_of(dataset=1)]
    assert Store(tmp_path, "synthetic").rows([unit_of()]) == [row]
    assert len(row) == len(COLUMNS)


def test_a_setting_matters_only_to_the_methods_that_take_it(tmp_path):
    store = Store(tmp_path, "synthetic")

    def same(method, **how):
        return store.path_of(unit_of(method=method)) == store.path_of(unit_of(method=method, **how))

    assert same("MLE", rounds=7)
    assert same("PS", rounds=7)
    assert not same("BITL", rounds=7)
    assert same("ITL", draws=7)
    assert not same("PS", draws=7)
    assert not same("MLE", seed=7)


def test_other_code_never_mixes(monkeypatch, tmp_path):
    before = unit_of(method="BITL").settings()["code"], unit_of(method="MLE").settings()["code"]
    real = fingerprint._bytes
    monkeypatch.setattr(
        fingerprint, "_bytes", lambda path: real(path) + (b"# changed" if path.name == "tempering.py" else b"")
    )
    unit_module._settings.cache_clear()
    try:
        after = unit_of(method="BITL").settings()["code"], unit_of(method="MLE").settings()["code"]
    finally:
        unit_module._settings.cache_clear()
    assert after[0] != before[0], "BITL is sampled by tempering.py"
    assert after[1] == before[1], "MLE is not"


def test_a_fingerprint_covers_what_a_method_imports():
    names = {path.relative_to(fingerprint.ROOT).as_posix() for path in fingerprint._closure([TEMPERING])}
    assert {
        "posterior/tempering.py",
        "posterior/smc.py",
        "_kernels_smc.py",
        "_kernels.py",
        "planning.py",
        "errors.py",
    } <= names
    assert not any(name.startswith(("cli", "estimators/mce")) for name in names)


def test_a_damaged_unit_is_named(tmp_path):
    store = Store(tmp_path, "synthetic")
    store.path_of(unit_of()).write_bytes(b"half of it")
    with pytest.raises(DataError, match=r"Cannot read .*-000\.parquet: .*; delete it and run again\."):
        store.rows([unit_of()])


def test_nothing_to_store_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"The unit level40-gridworld-coverage000-000 of ITL has no results to store\."):
        Store(tmp_path, "synthetic").put(unit_of(), [])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["everything"],
            "The 'what' parameter must be one of 'synthetic', 'joint', 'epsilon', 'sensitivity', 'feasible-region', "
            "'counterfactual', 'icu', 'all'. Got 'everything' instead.",
        ),
        (
            ["synthetic", "--stochastic", "30"],
            "The 'stochastic' parameter must be one of '40', '20', '0'. Got '30' instead.",
        ),
        (
            ["joint", "--engine", "abacus"],
            "The 'engine' parameter must be one of 'local', 'dask'. Got 'abacus' instead.",
        ),
        (
            ["joint", "--engine", "dask"],
            "The dask engine needs the address of a running scheduler: --scheduler tcp://host:8786.",
        ),
        (
            ["synthetic", "--method", "magic"],
            "The 'method' parameter must be one of 'MLE', 'ITL', 'MCE', 'PS', 'BITL'. Got 'magic' instead.",
        ),
    ],
)
def test_bad_options_get_one_sentence(arguments, sentence, tmp_path):
    command = [sys.executable, "-c", "from bitl.cli import main; main()", "reproduce", *arguments]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr == f"bitl: {sentence}\n"


def test_the_joint_study_compares_four_learners_on_the_same_batches():
    todo = joint.units(2, How(seed=1))
    rows = [row for unit in todo for row in joint.compute(unit)]
    (table,) = joint_tables(rows)
    assert set(table.methods) == {"ITL", "ITL-No-R", "ITL-No-R, per state", "control"}
    cells = dict(zip(table.methods, dict(table.rows)["value, transfer"], strict=True))
    assert (cells["ITL-No-R"].published_mean, cells["ITL-No-R"].published_sd) == (41.15, 9.95)
    assert cells["control"].published_mean is None
    world, tolerance = world_of(todo[0])
    model = bitl.fit_itl(batch_of(todo[0], world, tolerance), task=world.task, epsilon=tolerance)
    value = bitl.metrics.value(bitl.metrics.learned_policy(model, world.task), world.T, world.task)
    ours = [row[7] for row in rows if row[3:7] == (0, 0.0, "ITL", "value")]
    assert ours == [pytest.approx(value)]


def test_the_epsilon_study_scores_every_epsilon_and_recommends_one(tmp_path):
    (unit,) = epsilon.units(1, How())
    rows = epsilon.compute(unit)
    assert len(rows) == len(epsilon.EPSILONS) * len(epsilon.SCORES) + 1
    ((chosen, number),) = epsilon.recommendations(rows).items()
    assert chosen in epsilon.EPSILONS
    assert number == 1
    found = epsilon.by_metric(rows)
    scores = {e: np.mean([found[f"{name}@{e:g}"] for name in epsilon.SCORES.values()]) for e in epsilon.EPSILONS}
    assert scores[chosen] == pytest.approx(np.nanmax(list(scores.values())))
    assert [path.suffix for path in figures.epsilon_figure(rows, tmp_path)] == [".png", ".svg"]


def test_the_feasible_set_is_not_convex(tmp_path):
    pieces = feasible_region.slices(41)
    assert all(feasible_region.verify(piece) for piece in pieces)
    first = pieces[0]
    spoilt = feasible_region.Slice(first.t102, first.axis, first.feasible, first.witness[[0, 0, 0]])
    assert not feasible_region.verify(spoilt), "three feasible points witness nothing"
    for piece in pieces:
        x, y = 7, 30
        (model,) = feasible_region.models(piece.axis[[x]], piece.axis[[y]], piece.t102)
        whole = bitl.certify(
            model, task=feasible_region.TASK, expert=feasible_region.EXPERT, epsilon=feasible_region.EPSILON
        )
        assert whole.holds == piece.feasible[x, y]
    assert len(figures.feasible_region_figure(tmp_path, 21)) == 2


def test_a_convex_region_has_no_witness():
    axis = np.linspace(0, 1, 9)
    assert feasible_region._witness(axis, axis[:, None] + axis <= 1) is None


def test_figures_of_the_study_from_its_rows(tmp_path):
    rng = np.random.default_rng(0)
    found = []
    for coverage in (0.2, 1.0):
        for number in range(6):
            place = ("synthetic", "20", "gridworld", number, coverage)
            for suffix in ("", "_transfer"):
                found.append((*place, "BITL", "bayesian_regret" + suffix, 10 - number))
                found += [
                    (*place, name, "normalised_value" + suffix, number + rng.random()) for name in ("BITL", "mine")
                ]
    written = figures.study_figures(found, tmp_path)
    assert [path.name for path in written] == ["coverage-stochastic20.png", "coverage-stochastic20.svg"]
    once = [(*found[0][:3], 0, 0.2, "rarely", "normalised_value" + suffix, 1.0) for suffix in ("", "_transfer")]
    assert "rarely" not in figures.study_figures([*found, *once], tmp_path / "again")[1].read_text(), "one batch of six"
    text = written[1].read_text()
    for words in ("Gridworld, transfer task", "mine", "standard task: ρ = -"):
        assert words in text
    regret, value = figures.regret_cloud(figures.coverage_values(found), "20", "gridworld", "")
    assert len(regret) == 12
    assert curves.correlation(regret, value) < -0.8
    assert np.isnan(curves.correlation(np.ones(4), np.arange(4.0)))


def test_the_gridworld_and_the_counterfactual_are_drawn(tmp_path):
    (_, svg) = figures.gridworld_figure(tmp_path)
    assert "transfer task" in svg.read_text()
    (_, svg) = figures.counterfactual_figure(tmp_path, How(draws=8, rounds=10))
    for words in ("(uniform)", "never taken there", "BITL"):
        assert words in svg.read_text()


def test_the_icu_study_builds_what_it_is_not_given(monkeypatch, tmp_path):
    import bitl.cli  # noqa: F401  # the module below is hidden by the command of the same name

    icu = sys.modules["bitl.cli.icu"]
    calls = []
    monkeypatch.setattr(icu, "build", lambda **options: calls.append(("build", options)))
    monkeypatch.setattr(icu, "run", lambda **options: calls.append(("run", options)))
    from bitl.cli.reproduce import reproduce

    reproduce("icu", mimic="somewhere", seed=3, out=tmp_path)
    file = tmp_path / "icu" / "transitions.parquet"
    assert calls[0] == ("build", {"mimic": "somewhere", "out": file})
    name, options = calls[1]
    assert (name, options["transitions"], options["seed"], options["tune"]) == ("run", file, 3, True)
    calls.clear()
    reproduce("icu", transitions=file, quick=True, out=tmp_path)
    assert [name for name, _ in calls] == ["run"], "transitions that are given are not built again"


def test_a_size_of_nothing_is_nothing():
    from bitl.cli.reproduce import _number

    assert [_number(quick, given, 2, 100) for quick in (True, False) for given in (None, 0, 7)] == [2, 0, 7, 100, 0, 7]
    todo = units(Size(("0",), 3, 0, 0, 0), How())
    assert {unit.world for unit in todo} == {"gridworld"}
    assert len(todo) == 3 * 5
