"""BITL against plain rejection, and its contract."""

import numpy as np
import pytest

import bitl
from bitl.posterior.bitl import SAMPLERS
from posterior.small_problems import PROBLEMS, agrees, exact_draws, small, z_scores

by_name = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
EFFORT = {"tempering": {"rounds": 2000}, "smc": {"particles": 400}}


@by_name
@pytest.mark.parametrize("sampler", EFFORT)
def test_agrees_with_rejection(problem, sampler):
    exact = exact_draws(problem)
    common = {"sampler": sampler, **EFFORT[sampler], **problem.arguments()}
    post = bitl.sample_bitl(problem.counts, draws=24 * 400, seed=2, runs=24, **common)
    z = z_scores(post, exact.T, problem.task)
    assert agrees(z), (np.sqrt(np.mean(z**2)), np.abs(z).max())
    gap = post.info["log_evidence"] - exact.info["log_evidence"]
    error = np.hypot(post.info["log_evidence_se"], exact.info["acceptance_se"] / exact.info["acceptance"])
    assert abs(gap) < 4 * error


def test_a_wrong_target_is_caught():
    problem = PROBLEMS[4]
    wrong = {**problem.arguments(), "epsilon": 1.4 * problem.epsilon}
    post = bitl.sample_bitl(problem.counts, draws=24 * 400, seed=2, runs=24, rounds=2000, **wrong)
    assert not agrees(z_scores(post, exact_draws(problem).T, problem.task))


@pytest.mark.parametrize("sampler", EFFORT)
def test_does_not_depend_on_workers(sampler):
    problem = PROBLEMS[2]
    one, two = (
        bitl.sample_bitl(problem.counts, draws=30, seed=3, runs=3, workers=w, sampler=sampler, **problem.arguments())
        for w in (1, 2)
    )
    assert np.array_equal(one.T, two.T)
    assert one.info["log_evidences"] == two.info["log_evidences"]


def test_every_draw_is_certified_and_runs_share_the_draws():
    problem = PROBLEMS[4]
    shares = []
    post = bitl.sample_bitl(
        problem.counts, draws=31, seed=4, runs=3, rounds=100, progress=shares.append, **problem.arguments()
    )
    assert len(post) == 31
    assert np.array_equal(np.bincount(post.run), [11, 10, 10])
    assert not post.violations(expert=problem.expert, epsilon=problem.epsilon).any()
    assert shares[-1] == 1.0
    assert min(np.diff(shares)) >= 0


def test_epsilon_zero_with_several_valid_actions_is_refused():
    problem = PROBLEMS[4]
    with pytest.raises(bitl.DataError, match="exactly equal in value"):
        bitl.sample_bitl(problem.counts, draws=10, seed=0, **{**problem.arguments(), "epsilon": 0.0})


def test_impossible_constraints_are_a_sampling_error():
    problem = small("impossible", {(2, 0): (0, 0, 5), (0, 0): (1, 0, 0)}, epsilon=10.0, delta=0.001)
    with pytest.raises(bitl.SamplingError, match="No model that satisfies the constraints was found"):
        bitl.sample_bitl(problem.counts, draws=10, seed=0, runs=1, rounds=48, **problem.arguments())


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_contract_of_every_sampler(sampler):
    problem = PROBLEMS[0]
    options = {"init": exact_draws(problem).T[0]} if sampler == "reflective-hmc" else {}
    options |= dict.fromkeys(EFFORT.get(sampler, ()), 48)
    common = {"draws": 24, "sampler": sampler, "runs": 3, **options, **problem.arguments()}
    post = bitl.sample_bitl(problem.counts, seed=5, **common)
    again = bitl.sample_bitl(problem.counts, seed=5, **common)
    other = bitl.sample_bitl(problem.counts, seed=6, **common)
    assert post.T.shape == (24, 3, 2, 3)
    assert np.array_equal(post.T, again.T)
    assert not np.array_equal(post.T, other.T)
    assert post.method == "BITL"
    assert post.info["sampler"] == sampler
    assert 0 < post.info["acceptance"] <= 1
    assert len(np.unique(post.run)) > 1
    assert not post.violations(expert=problem.expert, epsilon=problem.epsilon).any()


def test_unknown_samplers_and_options_are_refused():
    problem = PROBLEMS[0]
    with pytest.raises(bitl.DataError, match="must be one of 'tempering'"):
        bitl.sample_bitl(problem.counts, draws=10, seed=0, sampler="nuts", **problem.arguments())
    with pytest.raises(bitl.DataError, match="no option 'leaps'"):
        bitl.sample_bitl(problem.counts, draws=10, seed=0, leaps=3, **problem.arguments())
    with pytest.raises(bitl.DataError, match="'tempering' has no particles; they belong to 'smc'"):
        bitl.sample_bitl(problem.counts, draws=10, seed=0, particles=3, **problem.arguments())


def test_reflective_hmc_starts_at_the_itl_estimate():
    problem = PROBLEMS[0]
    options = {"draws": 2, "seed": 0, "sampler": "reflective-hmc", "runs": 1} | problem.arguments()
    start = bitl.fit_itl(problem.counts, **problem.arguments()).T
    warm = bitl.sample_bitl(problem.counts, **options)
    told = bitl.sample_bitl(problem.counts, init=start, **options)
    np.testing.assert_array_equal(warm.T, told.T)


def test_too_many_particles_are_refused_before_memory_runs_out():
    problem = PROBLEMS[0]
    with pytest.raises(bitl.SamplingError, match=r"would take about .* GB"):
        bitl.sample_bitl(problem.counts, draws=10, seed=0, sampler="smc", particles=10**9, **problem.arguments())
