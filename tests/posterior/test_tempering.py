"""Parallel tempering: the ratio of evidences, what a run records, and that a wrong exchange is caught."""

import numpy as np
import pytest

import bitl
from bitl import _kernels_smc as kernel
from bitl.errors import SamplingError
from bitl.posterior import tempering
from bitl.posterior.collapse import collapse
from bitl.posterior.runs import independent_runs
from bitl.posterior.smc import Particles
from oracles import smc as oracle
from posterior.small_problems import PROBLEMS, agrees, exact_draws, z_scores


def test_the_ratio_of_two_exponentials():
    """f = exp(-x) and f' = exp(-2 x) on x > 0: Z' / Z = 1/2."""
    rng = np.random.default_rng(0)
    forward, backward = -rng.exponential(1.0, 20_000), rng.exponential(0.5, 20_000)
    ratio = tempering.log_ratio(forward, backward)
    assert ratio == pytest.approx(np.log(0.5), abs=0.02)
    assert tempering.log_ratio(backward, forward) == pytest.approx(-ratio, abs=1e-9)


def test_the_ratio_of_a_truncated_distribution_is_the_share_inside():
    forward = np.array([0.0, -np.inf, 0.0, 0.0, -np.inf])
    assert tempering.log_ratio(forward, np.zeros(5)) == pytest.approx(np.log(3 / 5))
    assert tempering.log_ratio(np.full(5, -np.inf), np.zeros(5)) == -np.inf
    assert tempering.log_ratio(np.full(5, -100.0), np.full(5, -100.0)) == pytest.approx(0.0, abs=1e-8)


def test_a_run_that_waits_for_its_turn_does_not_start_after_a_failure():
    begun = []

    def one(i, report):
        begun.append(i)
        if i == 0:
            raise SamplingError("enough")
        while True:
            report(0.5)

    with pytest.raises(SamplingError, match="enough"):
        independent_runs(one, 6, 2, None)
    assert set(begun) <= {0, 1}


def test_a_round_compares_neighbours_as_the_slow_twin_does():
    """Log ratios of the tempered likelihoods, with rivals and without; exchanges follow them."""
    for problem in (PROBLEMS[4], PROBLEMS[5], PROBLEMS[6]):
        case, _ = collapse(problem.counts.N + problem.delta, problem.task, problem.expert, problem.epsilon)
        rng, betas = np.random.default_rng(3), np.array([0.0, 0.4, 3.0, np.inf])
        now = Particles.room(case, 4)
        kernel.draw_particles(case, rng, now.X)
        while True:  # the last one must be feasible
            kernel.complete_particles(case, False, *now)
            if not now.excess[3].any() and np.isfinite(now.log_below[3]).all():
                break
            kernel.draw_particles(case, rng, now.X[3:])
        for begin in range(6):
            at, seen = np.arange(4), np.zeros(5, np.int64)
            forward, backward = np.empty((2, 1, 3))
            kernel.temper_particles(
                case,
                betas,
                np.array([0.0, 0.5, 0.5, 1.5]),
                begin,
                *now,
                at,
                np.zeros(4, bool),
                rng,
                forward,
                backward,
                seen,
            )
            f = np.array([[oracle.log_target(case, b, e, x) for b in betas] for x, e in zip(*now[4:], strict=True)])
            above, i = f[:, 1:] - f[:, :-1], np.arange(3)
            np.testing.assert_allclose(forward[0], above[i, i], atol=1e-9)
            np.testing.assert_allclose(backward[0], -above[i + 1, i], atol=1e-9)
            swapped = np.flatnonzero(at[:-1] > at[1:])
            assert set(swapped % 2) <= {begin % 2}
            assert set(swapped) >= {j for j in range(begin % 2, 3, 2) if forward[0, j] + backward[0, j] >= 0}
            now = now.take(at)


def one_run(problem, *, draws, **options):
    case, layout = collapse(problem.counts.N + problem.delta, problem.task, problem.expert, problem.epsilon)
    shares = []
    (run,) = tempering.run_tempering(
        case, layout, [np.random.default_rng(0)], sizes=[draws], threads=1, progress=shares.append, **options
    )
    return run, shares


def test_a_run_says_what_happened():
    run, shares = one_run(PROBLEMS[4], draws=30, rounds=400)
    assert len(run.T) == 30
    assert run.betas[0] == 0
    assert np.isinf(run.betas[-1])
    assert np.all(np.diff(run.betas) > 0)
    assert 0 < run.acceptance < 1
    assert 0 < run.exchanged < 1
    assert 0 < run.round_trips < 400
    assert run.exactness > 0.9
    assert shares[-1] == 1.0
    assert min(np.diff(shares)) >= 0


def test_a_run_has_twice_as_many_rounds_as_draws():
    run, _ = one_run(PROBLEMS[4], draws=30, rounds=30)
    assert len(run.T) == 30
    assert run.rounds == 60
    assert np.isfinite(run.log_evidence)


def test_what_is_kept_stays_evenly_spaced():
    case, _ = collapse(PROBLEMS[4].counts.N + 0.05, PROBLEMS[4].task, PROBLEMS[4].expert, PROBLEMS[4].epsilon)
    chains = tempering.Chains(case, np.random.default_rng(0), keep=5, burn_in=7, rounds=20)
    seen = {}

    def remember(_):
        if chains.done:
            seen[chains.done] = chains.now.X[chains.at[-1]].copy()

    for rounds in (20, 33, 121):
        chains.advance(rounds, remember)
    assert chains.spacing == 16  # 2 at first, doubled whenever ten were kept
    expected = np.arange(7 + 16, 122, 16)
    assert chains.count == len(expected)
    for kept, done in zip(chains.kept.X, expected, strict=False):
        np.testing.assert_array_equal(kept, seen[done])
    assert sum(len(part) for part in chains.forward) == 121 - 7


def test_runs_go_on_until_they_agree(monkeypatch):
    problem = PROBLEMS[4]
    monkeypatch.setattr(tempering, "CHECKPOINTS", (50, 400, 800, 1600, 100_000))
    monkeypatch.setattr(tempering, "FIRST_ROUNDS", 10)
    post = bitl.sample_bitl(problem.counts, draws=400, seed=0, **problem.arguments())
    assert 50 < post.info["rounds"] < 100_000
    assert post.diagnostics().rhat.max() < 1.03
    monkeypatch.setattr(tempering, "EVIDENCE_SD", 0.0)
    monkeypatch.setattr(tempering, "CHECKPOINTS", (50, 300))
    assert bitl.sample_bitl(problem.counts, draws=40, seed=0, **problem.arguments()).info["rounds"] == 300


def test_runs_whose_last_weights_disagree_go_on(monkeypatch):
    """They agree at the first checkpoint, but not by the evidence that they would return."""
    problem, weigh, evidences = PROBLEMS[4], tempering.Chains.weigh, iter(range(1000))
    monkeypatch.setattr(tempering, "CHECKPOINTS", (1600, 1700))
    options = {"draws": 400, "seed": 0, **problem.arguments()}
    assert bitl.sample_bitl(problem.counts, **options).info["rounds"] == 1600
    monkeypatch.setattr(
        tempering.Chains, "weigh", lambda chains: weigh(chains)._replace(log_evidence=float(next(evidences)))
    )
    assert bitl.sample_bitl(problem.counts, **options).info["rounds"] == 1700


def test_a_single_run_has_a_length_of_its_own(monkeypatch):
    monkeypatch.setattr(tempering, "ALONE", 700)
    assert one_run(PROBLEMS[4], draws=30, rounds=None)[0].rounds == 700


@pytest.mark.parametrize("price", [1.0, 0.5])
def test_exchanges_at_the_wrong_price_are_caught(monkeypatch, price):
    """The rounds in plain Python, with the likelihoods that decide about exchanges as they are, and halved."""
    problem = PROBLEMS[0]
    right = kernel.log_likelihood
    monkeypatch.setattr(kernel, "log_likelihood", lambda *given: price * right(*given))
    monkeypatch.setattr(kernel, "temper_particles", kernel.temper_particles.py_func)
    post = bitl.sample_bitl(
        problem.counts, draws=12 * 300, seed=2, runs=12, rounds=900, workers=1, **problem.arguments()
    )
    assert agrees(z_scores(post, exact_draws(problem).T, problem.task)) == (price == 1.0)


def test_an_interruption_ends_the_run():
    problem = PROBLEMS[4]

    def stop(share):
        if share > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bitl.sample_bitl(problem.counts, draws=40, seed=0, rounds=100_000, progress=stop, **problem.arguments())


def test_a_run_whose_sibling_failed_is_ended():
    """The others are told at their next report, and what is raised is the reason."""
    problem = PROBLEMS[4]
    seen = []

    def stop(share):
        seen.append(share)
        if len(seen) == 5:
            raise SamplingError("enough")

    with pytest.raises(SamplingError, match="enough"):
        bitl.sample_bitl(problem.counts, draws=40, seed=0, rounds=100_000, progress=stop, **problem.arguments())
    assert max(seen) < 0.5
