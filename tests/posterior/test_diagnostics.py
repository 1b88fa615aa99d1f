"""Diagnostics that cannot be fooled, and what a posterior answers."""

import numpy as np
import pytest

import bitl
from bitl.posterior.diagnostics import chain_ess, diagnose
from bitl.posterior.posterior import Posterior

RUN = np.repeat(np.arange(4), 1000)
REMEDY = "increase particles to 100"


def autoregression(rho, rng):
    x = np.empty((4, 1000))
    x[:, 0] = rng.normal(size=4)
    for i in range(1, 1000):
        x[:, i] = rho * x[:, i - 1] + np.sqrt(1 - rho**2) * rng.normal(size=4)
    return x.reshape(-1, 1)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_chain_ess_of_an_autoregression(rho):
    ess = chain_ess(autoregression(rho, np.random.default_rng(0)), RUN)
    assert ess[0] == pytest.approx(4000 * (1 - rho) / (1 + rho), rel=0.3)


def test_a_chain_that_never_moves_has_no_effective_draws():
    found = diagnose(np.full((4000, 1), 3.7), RUN, chains=True, remedy=REMEDY)
    assert np.isnan(found.ess[0])
    assert np.isnan(found.chain_ess[0])
    assert not found.ok
    assert "never move" in str(found)
    one_stuck = np.where(RUN[:, None] == 2, 1.0, np.random.default_rng(0).normal(size=(4000, 1)))
    assert np.isnan(chain_ess(one_stuck, RUN)[0])


def test_disagreeing_runs_are_a_warning_with_a_remedy():
    values = np.random.default_rng(1).normal(size=(4000, 2)) + np.outer(RUN, [0.0, 1.0])
    found = diagnose(values, RUN, chains=False, remedy=REMEDY)
    assert found.chain_ess is None
    assert any("R-hat" in text and REMEDY in text for text in found.warnings)
    assert any("effective draws" in text and REMEDY in text for text in found.warnings)


def test_good_draws_raise_no_warning():
    found = diagnose(np.random.default_rng(3).normal(size=(4000, 2)), RUN, chains=True, remedy=REMEDY)
    assert found.ok
    assert "R-hat at most 1.0" in str(found)
    assert found["rhat"] is found.rhat


def test_a_single_run_cannot_be_judged():
    found = diagnose(np.random.default_rng(3).normal(size=(40, 2)), np.zeros(40, int), chains=False, remedy=REMEDY)
    assert "single run" in found.warnings[0]
    assert "cannot be given" in str(found)


def test_credible_intervals_and_the_probability_to_be_optimal():
    T = np.zeros((100, 2, 2, 2))
    p = (np.arange(100) + 0.5) / 100
    T[:, :, 0, 1] = p[:, None]
    T[:, :, 0, 0] = 1 - p[:, None]
    T[:, :, 1, 1], T[:, :, 1, 0] = 0.3, 0.7
    task = bitl.Task(reward=[0.0, 1.0], discount=0.5)
    post = Posterior(T, "made up", np.zeros(100, int), task)
    low, high = post.credible_interval("T", mass=0.9)
    assert (low[0, 0, 1], high[0, 0, 1]) == pytest.approx((0.045, 0.945))
    assert low[0, 1, 1] == high[0, 1, 1] == 0.3
    assert post.credible_interval("V")[0].shape == (2,)
    assert post.credible_interval("Q")[0].shape == (2, 2)
    assert post.probability_optimal()[0] == pytest.approx([0.7, 0.3])
    with pytest.raises(bitl.DataError, match="must be one of 'V', 'Q', 'T'"):
        post.credible_interval("R")


@pytest.mark.parametrize(("sampler", "effort"), [("tempering", "rounds"), ("smc", "particles")])
def test_the_sampler_names_its_remedy(sampler, effort):
    batch = bitl.Transitions([0, 0, 1], [0, 0, 0], [1, 1, 1], num_states=2, num_actions=2)
    task = bitl.Task(reward=[0.0, 1.0], discount=0.5)
    options = {"draws": 40, "seed": 0, "delta": 0.5, "runs": 8, "sampler": sampler, effort: 60}
    post = bitl.sample_bitl(batch, task=task, epsilon=0.1, **options)
    assert any(f"increase {effort} to 240" in text for text in post.diagnostics().warnings)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_chain_that_is_too_short_has_no_autocorrelation(length):
    run = np.repeat(np.arange(4), length)
    assert np.isnan(chain_ess(np.random.default_rng(0).normal(size=(4 * length, 2)), run)).all()
