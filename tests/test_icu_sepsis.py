"""ICU-Sepsis: a tiny copy of its files made by hand, and the real ones where they are installed."""

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

from bitl import DataError, ExpertActions, epsilon_for_stochastic_share, methods, metrics, plan, worlds
from bitl.errors import MissingExtraError
from bitl.worlds.icu_sepsis import icu_sepsis

S, A = 5, 2  # two clusters, died, survived, over


@pytest.fixture
def folder(tmp_path):
    T = np.zeros((S, A, S))
    T[0, 0], T[0, 1] = [0, 0.5, 0.25, 0.25, 0], [0, 0, 0.1, 0.9, 0]
    T[1, 0], T[1, 1] = [0, 0, 0.6, 0.4, 0], [0.5, 0, 0, 0.5, 0]
    T[2:, :, 4] = 1
    r = np.zeros((S, A, S))
    r[:3, :, 3] = 1
    np.savez(tmp_path / "dynamics.npz", tx_mat=T, r_mat=r, d_0=np.array([0.5, 0.5, 0, 0, 0]))
    (tmp_path / "admissible_actions.txt").write_text("1 2 2 2 2\n0\n0 1\n0 1\n0 1\n0 1\n")
    return tmp_path


def test_a_world_of_two_clusters(folder):
    world = icu_sepsis(discount=0.9, folder=folder)
    assert world.T.shape == (S, A, S)
    assert world.task.allowed(A).tolist() == [[True, False], *[[True, True]] * 4]
    assert world.task.labels.states == ("cluster 0", "cluster 1", "died", "survived", "over")
    np.testing.assert_allclose(world.task.rewards(A)[:2], [[0.25, 0.9], [0.4, 0.5]])
    np.testing.assert_allclose(world.task.rewards(A)[2:], 0)
    np.testing.assert_allclose(world.task.start, [0.5, 0.5, 0, 0, 0])
    # V0 = 0.25 + 0.45 V1; V1 = max(0.4, 0.5 + 0.45 V0)
    v0 = (0.25 + 0.45 * 0.5) / (1 - 0.45**2)
    best = plan(world.T, world.task)
    np.testing.assert_allclose(best.V, [v0, 0.5 + 0.45 * v0, 0, 0, 0], atol=1e-12)
    free = icu_sepsis(discount=0.9, folder=folder, admissible_only=False)
    assert plan(free.T, free.task).policy[0] == 1


def test_rewards_on_arrival_are_the_same_problem_one_step_later(folder):
    on_action, on_arrival = (icu_sepsis(discount=0.9, folder=folder, reward_on=on) for on in ("action", "arrival"))
    assert on_arrival.task.rewards(A)[:, 0].tolist() == [0, 0, 0, 1, 0]
    first, second = (plan(w.T, w.task) for w in (on_action, on_arrival))
    np.testing.assert_allclose(second.V[:2], 0.9 * first.V[:2], atol=1e-12)
    assert first.policy[:2].tolist() == second.policy[:2].tolist()


def test_broken_files(folder):
    with pytest.raises(DataError, match=r"'reward_on' parameter must be one of 'action', 'arrival'\. Got 'exit'"):
        icu_sepsis(discount=0.9, folder=folder, reward_on="exit")
    (folder / "admissible_actions.txt").write_text("1 2\n0\n0 1\n")
    with pytest.raises(DataError, match=r"a line for each of 5 states"):
        icu_sepsis(discount=0.9, folder=folder)
    (folder / "dynamics.npz").write_bytes(b"not an archive")
    with pytest.raises(DataError, match=r"Cannot read ICU-Sepsis from .*; reinstall the package"):
        icu_sepsis(discount=0.9, folder=folder)
    with pytest.raises(DataError, match=r"Cannot read ICU-Sepsis from .*; reinstall the package"):
        icu_sepsis(discount=0.9, folder=folder / "nowhere")


@pytest.mark.parametrize("text", ["1 2 2 2 2\n0\n0 x\n0 1\n0 1\n0 1\n", "1 2 2 2 2\n0\n0 7\n0 1\n0 1\n0 1\n"])
def test_a_list_of_actions_that_makes_no_sense(folder, text):
    (folder / "admissible_actions.txt").write_text(text)
    with pytest.raises(DataError):
        icu_sepsis(discount=0.9, folder=folder)


def test_an_archive_without_the_right_arrays(folder):
    np.savez(folder / "dynamics.npz", tx_mat=np.ones((2, 1, 2)))
    with pytest.raises(DataError, match=r"Cannot read ICU-Sepsis"):
        icu_sepsis(discount=0.9, folder=folder)


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(import_module("bitl.worlds.icu_sepsis"), "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'bitl\[sepsis\]'"):
        icu_sepsis(discount=0.9)


real = pytest.mark.skipif(find_spec("icu_sepsis") is None, reason="the package icu-sepsis is not installed")


@real
def test_the_published_optimum():
    world = icu_sepsis(discount=0.999)
    assert world.T.shape == (716, 25, 716)
    allowed, R = world.task.allowed(25), world.task.rewards(25)
    assert 1 <= allowed.sum(axis=1).min() < allowed.sum(axis=1).max() <= 25
    assert world.task.labels.states[-3:] == ("died", "survived", "over")
    # the simulator's own discount is 1 and its episodes end: value iteration from 0 rises to the chance of survival
    V = np.zeros(716)
    masked, flat = np.where(allowed, R, -np.inf), world.T.reshape(-1, 716)
    for _ in range(400):
        new = (masked + (flat @ V).reshape(716, 25)).max(axis=1)
        gain = np.abs(new - V).max()
        V = new
        if gain < 1e-6:
            break
    undiscounted = world.task.start @ V
    assert undiscounted == pytest.approx(0.88, abs=0.006)  # published: 0.88
    # rewards are at least 0, so discounting lowers values, by at most (1 - gamma) times the expected number of steps
    value = world.task.start @ plan(world.T, world.task).V
    assert 0 < undiscounted - value < 0.02


@real
def test_the_package_itself_is_never_imported():
    code = (
        "import sys; from bitl.worlds.icu_sepsis import _assets; assert (_assets() / 'dynamics.npz').exists(); "
        "bad = {'gym', 'gymnasium', 'icu_sepsis'} & set(sys.modules); assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def three_methods(world, epsilon, draws):
    """Fit MLE, ITL and PS to experts seen in half of the states."""
    truth = ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    batch = worlds.batch_by_coverage(world, truth, np.random.default_rng(0), coverage=0.5, per_action=5)
    expert = ExpertActions.observed(batch)
    problem = methods.Problem(batch, world.task, epsilon, expert, draws, 0)
    return {name: methods.run(name, problem).learned for name in ("MLE", "ITL", "PS")}, expert


def test_mle_itl_and_ps_on_two_clusters(folder):
    world = icu_sepsis(discount=0.9, folder=folder)
    learned, expert = three_methods(world, 0.05, 20)
    assert learned["ITL"].certificate.holds
    assert not (expert.valid & ~world.task.allowed(A)).any()
    for one in learned.values():
        policy = metrics.learned_policy(one, world.task)
        assert policy[0, 1] == 0, "the action that is not admissible is never taken"


@real
def test_mle_itl_and_ps_on_the_real_world():
    world = icu_sepsis(discount=0.99)
    epsilon = epsilon_for_stochastic_share(world.T, world.task, 0.2)
    learned, expert = three_methods(world, epsilon, 1)
    assert learned["ITL"].certificate.holds
    assert not learned["ITL"].certificate.leaves_support.any()
    assert learned["MLE"].certificate.violations > 500
    policy = metrics.learned_policy(learned["PS"], world.task)
    assert not (policy[~world.task.allowed(25)] > 0).any()
    assert expert.visited.sum() == 358
