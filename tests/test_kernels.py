"""Every compiled loop equals its twin in ``oracles.kernels``."""

import inspect

import numpy as np
import pytest

from bitl import _kernels
from oracles import kernels as twin
from oracles.problems import random_mask, random_model

SEEDS = range(5)


def problem(seed, S=7, A=3):
    rng = np.random.default_rng(seed)
    return rng, random_model(rng, S, A, sparse=seed % 2 == 1), rng.normal(size=(S, A)), random_mask(rng, S, A)


def test_every_kernel_has_a_twin():
    compiled = {name for name, thing in vars(_kernels).items() if hasattr(thing, "py_func")}
    twins = {name for name, thing in vars(twin).items() if inspect.isfunction(thing)}
    assert compiled == twins


@pytest.mark.parametrize(
    ("row", "bad"),
    [
        ([0.5, 0.5], False),
        ([1.0, 0.0], False),
        ([0.5, 0.5 + 5e-9], False),
        ([0.5, 0.5 + 5e-8], True),
        ([1.5, -0.5], True),
        ([np.nan, 0.5], True),
        ([0.5, np.nan], True),
        ([np.inf, 0.5], True),
        ([np.inf, -np.inf], True),
    ],
)
def test_first_bad_row(row, bad):
    rows = np.array([[0.25, 0.75], row, [2.0, 0.0]])
    assert _kernels.first_bad_row(rows, 1e-8) == twin.first_bad_row(rows, 1e-8) == (1 if bad else 2)
    assert _kernels.first_bad_row(rows[:1], 1e-8) == twin.first_bad_row(rows[:1], 1e-8) == -1


@pytest.mark.parametrize("seed", SEEDS)
def test_linear_algebra(seed):
    rng, T, R, _ = problem(seed)
    S = len(R)
    x, y = rng.normal(size=S), rng.normal(size=S)
    assert _kernels.dot(x, y) == pytest.approx(twin.dot(x, y), abs=1e-14)

    M = rng.normal(size=(S, S))
    M[np.arange(S), np.arange(S)] = np.abs(M).sum(axis=1) + 0.01
    b = rng.normal(size=S)
    solved = b.copy()
    _kernels.solve_dominant(M.copy(), solved, np.empty(S))
    np.testing.assert_allclose(solved, twin.solve_dominant(M, b), rtol=1e-12, atol=1e-13)

    policy = rng.integers(R.shape[1], size=S)
    V = np.empty(S)
    _kernels.policy_value(T, R, 0.95, policy, np.empty((S, S)), np.empty(S), V)
    np.testing.assert_allclose(V, twin.policy_value(T, R, 0.95, policy), rtol=1e-12, atol=1e-12)

    Q = np.empty(R.shape)
    _kernels.look_ahead(T, R, 0.95, V, Q)
    np.testing.assert_allclose(Q, twin.look_ahead(T, R, 0.95, V), rtol=1e-13, atol=1e-13)
    allowed = np.arange(R.size).reshape(R.shape) % 3 != 1
    _kernels.look_ahead_allowed(T, R, allowed, 0.95, V, Q)
    np.testing.assert_allclose(Q, twin.look_ahead_allowed(T, R, allowed, 0.95, V), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_improve(seed, margin):
    rng, _, _, allowed = problem(seed)
    Q = rng.integers(4, size=allowed.shape) / 2.0  # whole halves: ties and gains of exactly the margin occur
    policy = allowed.argmax(axis=1)
    expected, changed = twin.improve(Q, allowed, policy, margin)
    assert _kernels.improve(Q, allowed, policy, margin) == changed
    np.testing.assert_array_equal(policy, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_break_ties(seed):
    rng, _, _, allowed = problem(seed, S=12, A=4)
    Q = rng.integers(3, size=allowed.shape) + 1e-14 * rng.normal(size=allowed.shape)
    policy = np.full(len(Q), -1)
    _kernels.break_ties(Q, allowed, policy, 1e-12)
    np.testing.assert_array_equal(policy, twin.break_ties(Q, allowed, 1e-12))


@pytest.mark.parametrize("seed", SEEDS)
def test_policy_iteration(seed):
    rng, T, R, allowed = problem(seed)
    S, A = R.shape
    stack = np.stack([T, random_model(rng, S, A), random_model(rng, S, A, sparse=True)])
    policy, V, Q, rounds = (np.zeros((3, S), np.int64), np.zeros((3, S)), np.empty((3, S, A)), np.zeros(3, np.int64))
    policy[:] = allowed.argmax(axis=1)
    bad = _kernels.policy_iteration_stack(stack, R, allowed, 0.9, policy, V, Q, rounds, 1e-14, 1e-12, 1000)
    expected_policy, expected_V, expected_Q = twin.policy_iteration_stack(stack, R, allowed, 0.9)
    assert bad == -1
    assert np.all((rounds >= 1) & (rounds < 50))
    np.testing.assert_array_equal(policy, expected_policy)
    np.testing.assert_allclose(V, expected_V, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(Q, expected_Q, rtol=1e-11, atol=1e-12)

    one = np.empty((S, A))
    first, value = allowed.argmax(axis=1), np.zeros(S)
    _kernels.policy_iteration(T, R, allowed, 0.9, first, value, one, np.empty((S, S)), np.empty(S), 1e-14, 1000)
    np.testing.assert_allclose(value, twin.policy_iteration(T, R, allowed, 0.9)[1], rtol=1e-11, atol=1e-12)


def test_policy_iteration_says_which_row_is_bad():
    _, T, R, allowed = problem(0)
    S, A = R.shape
    stack = np.stack([T, T])
    stack[1, 4, 2] *= 1.01
    policy = np.tile(allowed.argmax(axis=1), (2, 1))
    bad = _kernels.policy_iteration_stack(
        stack, R, allowed, 0.9, policy, np.zeros((2, S)), np.empty((2, S, A)), np.zeros(2, np.int64), 1e-14, 1e-12, 99
    )
    assert bad == S * A + 4 * A + 2


def test_start_values():
    rng, T, R, _ = problem(3)
    stack = np.stack([T, random_model(rng, *R.shape)])
    policies = rng.integers(R.shape[1], size=(4, len(R)))
    start = np.full(len(R), 1 / len(R))
    values = np.empty((2, 4))
    _kernels.start_values(stack, R, 0.9, start, policies, values)
    np.testing.assert_allclose(values, twin.start_values(stack, R, 0.9, start, policies), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.001, 0.1, 0.29, 0.3, 0.7, 1.0, 2.5, 40.0])
def test_log_gamma_makes_the_same_calls_as_its_twin(alpha):
    compiled, plain = np.random.default_rng(8), np.random.default_rng(8)
    for _ in range(200):
        assert _kernels.log_gamma(alpha, compiled) == pytest.approx(twin.log_gamma(alpha, plain), rel=1e-12, abs=1e-12)
    if alpha < 0.3:
        for _ in range(200):
            assert _kernels.log_gamma_small(alpha, compiled) == pytest.approx(
                twin.log_gamma_small(alpha, plain), rel=1e-12, abs=1e-12
            )


def test_dirichlet_rows():
    alpha = np.array([[0.001, 0.001, 0.001], [5.001, 0.001, 2.001], [0.5, 1.0, 0.2]])
    out = np.empty((50, 3, 3))
    _kernels.dirichlet_rows(alpha, np.random.default_rng(5), out)
    np.testing.assert_allclose(out, twin.dirichlet_rows(alpha, np.random.default_rng(5), 50), rtol=1e-9, atol=1e-12)
    row = np.empty(3)
    _kernels.dirichlet_row(alpha[1], np.random.default_rng(6), row)
    np.testing.assert_allclose(row, twin.dirichlet_row(alpha[1], np.random.default_rng(6)), atol=1e-12)
