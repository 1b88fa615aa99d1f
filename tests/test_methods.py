"""The registry: a user's own method enters the demo's table."""

import numpy as np
import pytest

import bitl
from bitl import methods
from bitl.errors import DataError
from bitl.experiments.demo import run_demo, table


@pytest.fixture
def own_method():
    def fit_uniform(batch, *, task):
        assert task.num_states == 25
        return bitl.Estimate(np.full((25, 4, 25), 1 / 25), "uniform")

    methods.register("uniform", fit_uniform)
    yield "uniform"
    methods.unregister("uniform")


def test_own_method_appears_in_the_table(own_method):
    demo = run_demo(epsilon=3.0, coverage=0.4, draws=20, seed=1, rounds=20)
    column = [fit.name for fit in demo.fits].index(own_method)
    cells = {row["label"]: row["cells"][column]["text"] for row in table(demo)}
    assert cells["Bayesian regret"] == "–", "an estimate has no posterior regret"
    # every row of the uniform model differs from the truth by 2 (1 - overlap); summed by hand from the definition
    expected = np.abs(1 / 25 - bitl.worlds.gridworld().T).sum()
    assert cells["total variation"] == f"{expected:.1f}"


def test_methods_get_only_what_they_accept(own_method):
    world = bitl.worlds.gridworld()
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, 0.0)
    batch = bitl.worlds.batch_by_rollout(world, expert, np.random.default_rng(0), episodes=2, steps=5)
    problem = methods.Problem(batch, world.task, 0.0, expert, draws=3, seed=0)
    assert methods.run(own_method, problem).learned.method == "uniform"
    assert len(methods.run("PS", problem).learned) == 3


def test_unknown_method_is_named():
    with pytest.raises(DataError, match="There is no method 'nonsense'; the methods are MLE, "):
        methods.run("nonsense", None)


def test_a_method_must_be_callable():
    with pytest.raises(DataError, match="A method must be a function like fit_mle"):
        methods.register("number", 3)
