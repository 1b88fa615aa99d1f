"""The one-dimensional row problem and the programs of single states, against bisection and an interior-point method."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitl import Constraints, Counts, ExpertActions, Task
from bitl._kernels_itl import fill_row, on_path, row_path
from bitl.estimators.itl_program import Program
from oracles import itl as oracle
from oracles import planning

PROPERTY = settings(deadline=None, derandomize=True, max_examples=60)
DELTAS = st.sampled_from([1.0, 0.1, 0.001])


def look_up(lam, y, f, length, at):
    """The kernel's answer for a single path."""
    return on_path((lam[None], y[None], f[None], np.array([length])), 0, at)


class Row:
    """A row as the kernel wants it and as the oracle does."""

    def __init__(self, rng, S, delta, observed, ties):
        self.u = rng.normal(size=S) * 10.0 ** rng.integers(-2, 3)
        self.nearly = ties and rng.random() < 0.5  # not quite equal
        if ties:
            self.u = rng.choice(self.u[: max(1, S // 3)], size=S)
            if self.nearly:
                self.u = self.u * (1 + 1e-9 * rng.normal(size=S))
        self.u = self.u - 0.5 * (self.u.min() + self.u.max())  # as the kernel that calls them does
        self.index = np.sort(rng.choice(S, size=observed, replace=False))
        count = rng.integers(1, 20, size=observed).astype(float)
        self.weight = np.full(S, delta)
        self.weight[self.index] += count
        self.target = self.weight / self.weight.sum()
        self.delta = delta
        self.compact = (
            self.index,
            self.weight[self.index],
            self.target[self.index],
            delta,
            delta / self.weight.sum(),
        )

    def path(self, sign=1.0):
        u = sign * self.u
        lam, y, f = np.full((3, len(u) + 1), np.nan)
        n = row_path(u, np.argsort(u), *self.compact, lam, y, f)
        return u, lam, y, f, n

    def row(self, u, multiplier):
        out = np.full(len(u), np.nan)
        fill_row(u, *self.compact, multiplier, out)
        return out


@st.composite
def rows(draw, deltas=DELTAS, max_states=12):
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    S = draw(st.integers(1, max_states))
    return Row(rng, S, draw(deltas), draw(st.integers(0, S)), draw(st.booleans()))


@PROPERTY
@given(rows(), st.sampled_from([1.0, -1.0]))
def test_a_path_starts_at_the_target_ends_at_the_lowest_value_and_never_turns(row, sign):
    u, lam, y, f, n = row.path(sign)
    scale = max(np.abs(u).max(), 1e-300)
    assert 1 <= n <= len(u) + 1
    assert lam[0] == f[0] == 0
    assert y[0] == pytest.approx(row.target @ u, abs=1e-12 * scale)
    assert y[n - 1] == pytest.approx(u.min() if np.ptp(u) > 0 else u[0], abs=1e-9 * scale)
    assert (np.diff(lam[:n]) >= 0).all()
    assert (np.diff(y[:n]) <= 0).all()
    assert (np.diff(f[:n]) >= 0).all()


@PROPERTY
@given(rows())
def test_breakpoints_lie_on_the_rows_that_bisection_finds_and_entries_only_leave(row):
    u, lam, y, f, n = row.path()
    scale = max(np.ptp(u), 1e-300)
    support = np.ones(len(u), dtype=bool)
    for k in range(n):
        t = oracle.row_at(u, row.weight, row.target, lam[k])
        assert t @ u == pytest.approx(y[k], abs=1e-9 * scale)
        assert (row.weight * (t - row.target) ** 2).sum() == pytest.approx(
            f[k], abs=1e-9, rel=1e-5 if row.nearly else 1e-9
        )
        now = t > 1e-7
        assert not (now & ~support).any()
        support = now


@PROPERTY
@given(rows(), st.floats(0.01, 0.99), st.sampled_from([1.0, -1.0]))
def test_value_multiplier_and_row_at_a_point_of_the_path(row, share, sign):
    u, lam, y, f, n = row.path(sign)
    scale = np.ptp(u)
    if scale == 0:
        return
    at = (1 - share) * (row.target @ u) + share * u.min()
    multiplier, slope, loss = look_up(lam, y, f, n, at)
    t = row.row(u, multiplier)
    assert t.min() >= 0
    assert t.sum() == pytest.approx(1, abs=1e-14)
    assert t @ u == pytest.approx(at, abs=1e-10 * np.abs(u).max())
    assert (row.weight * (t - row.target) ** 2).sum() == pytest.approx(loss, abs=1e-10)
    by_solver, least = oracle.row_program(u / scale, row.weight, row.target, at / scale)
    assert loss == pytest.approx(least, abs=1e-8)
    if row.delta == 1:
        np.testing.assert_allclose(t, by_solver, rtol=0, atol=1e-5)
    # lambda = -f', slope = f'': by differences on both sides, unless a breakpoint lies between
    h = 1e-6 * scale
    if at + h < y[0] and at - h > y[n - 1] and not (np.abs(y[:n] - at) <= 2 * h).any():
        above, below = look_up(lam, y, f, n, at + h), look_up(lam, y, f, n, at - h)
        assert (below[2] - above[2]) / (2 * h) == pytest.approx(multiplier, rel=1e-5, abs=1e-8 / scale)
        assert (below[0] - above[0]) / (2 * h) == pytest.approx(slope, rel=1e-5)


@PROPERTY
@given(rows(), st.floats(0, 3))
def test_a_row_of_given_multiplier_equals_bisection(row, size):
    multiplier = size * row.weight.mean() / (np.ptp(row.u) or 1.0)
    for signed in (multiplier, -multiplier):
        t = row.row(row.u, signed)
        np.testing.assert_allclose(t, oracle.row_at(row.u, row.weight, row.target, signed), rtol=0, atol=1e-10)


def test_beyond_its_ends_a_path_stays_at_them():
    row = Row(np.random.default_rng(1), 6, 0.1, 3, ties=False)
    u, lam, y, f, n = row.path()
    assert look_up(lam, y, f, n, y[0] + 1) == (0, 0, 0)
    assert look_up(lam, y, f, n, u.min() - 1) == (lam[n - 1], 0, f[n - 1])
    np.testing.assert_allclose(row.row(u, lam[n - 1] * 2), np.eye(6)[u.argmin()], atol=1e-12)


def test_a_row_of_two_states_by_hand():
    # t = (1 - p, p), u = (0, 1): y = p, and both entries move alike, so f(p) = (w0 + w1) (p - p0)^2.
    index, weight, target = np.array([1]), np.array([3.5]), np.array([3.5 / 4])
    lam, y, f = np.zeros((3, 3))
    n = row_path(np.array([0.0, 1.0]), np.array([0, 1]), index, weight, target, 0.5, 0.5 / 4, lam, y, f)
    assert n == 2
    assert (y[0], y[1]) == (0.875, 0.0)
    multiplier, slope, loss = look_up(lam, y, f, n, 0.5)
    assert (multiplier, slope, loss) == pytest.approx((2 * 4 * 0.375, 2 * 4, 4 * 0.375**2))


def test_equal_values_leave_nothing_to_choose():
    row = Row(np.random.default_rng(2), 4, 0.1, 2, ties=False)
    row.u = np.full(4, 7.0)
    u, _, y, _, n = row.path()
    assert n == 1
    assert y[0] == pytest.approx(7.0)
    np.testing.assert_allclose(row.row(u, 5.0), row.target, atol=1e-14)


@settings(PROPERTY, max_examples=30)
@given(rows(deltas=st.sampled_from([1e-6, 1e-9]), max_states=40), st.floats(0.05, 0.95))
def test_a_tiny_weight_on_unseen_entries_does_not_blur_the_path(row, share):
    u, lam, y, f, n = row.path()
    at = (1 - share) * (row.target @ u) + share * u.min()
    t = row.row(u, look_up(lam, y, f, n, at)[0])
    assert t @ u == pytest.approx(at, abs=1e-7 * max(np.abs(u).max(), 1e-300))


# ------------------------------------------------------------------------------------------------------ one state


class Situation:
    """A random problem in the kernel's terms; state 0 and perhaps others are visited."""

    def __init__(self, rng, S, A, delta, *, masked, ties, gamma, room):
        self.S, self.A, self.delta, self.gamma = S, A, delta, gamma
        self.V = rng.normal(size=S) * 5
        if ties:
            self.V = rng.choice(self.V[: max(1, S // 2)], size=S)
        self.allowed = np.ones((S, A), dtype=bool)
        if masked:
            self.allowed = rng.random((S, A)) < 0.7
            self.allowed[np.arange(S), rng.integers(A, size=S)] = True
        self.valid = (rng.random((S, A)) < 0.4) & self.allowed
        first = self.allowed.argmax(axis=1)
        empty = ~self.valid.any(axis=1)
        self.valid[empty, first[empty]] = True
        self.states = np.sort(rng.choice(S, size=rng.integers(1, S + 1), replace=False))
        self.R = rng.normal(size=(S, A)) * room
        self.N = rng.integers(0, 6, size=(S, A, S)) * (rng.random((S, A, S)) < 0.4)
        self.N *= (rng.random((S, A)) < 0.7)[..., None]  # invalid actions have data too, and some rows have none
        self.N = self.N.astype(float)
        self.N[0, 0, 0] += 1
        self.valid[np.setdiff1d(np.arange(S), self.states)] = False

    def solve(self, close, floor, *, pin):
        """Rows of T (-1 where nothing was written), the gaps and the loss."""
        task = Task(reward=self.R, discount=self.gamma, admissible=self.allowed)
        epsilon, margin = 0.5 * (floor + close), 0.5 * (floor - close)
        program = Program.of(Counts(self.N), task, ExpertActions(self.valid), epsilon, self.delta, margin)
        assert program.states.tolist() == self.states.tolist()
        T = np.full((self.S, self.A, self.S), -1.0)
        loss, gap = program.solve(self.V, T, pin=pin)
        return T, gap, loss

    def oracle(self, s, close, floor, *, pin):
        some = np.flatnonzero(self.allowed[s])
        weight = self.N[s, some] + self.delta
        target = weight / weight.sum(axis=1, keepdims=True)
        pinned = self.V[s] if pin else None
        return oracle.state_program(
            self.R[s, some], self.V, self.gamma, self.valid[s, some], weight, target, close, floor, pinned
        )


@st.composite
def situations(draw):
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    return Situation(
        rng,
        draw(st.integers(2, 6)),
        draw(st.integers(1, 4)),
        draw(DELTAS),
        masked=draw(st.booleans()),
        ties=draw(st.booleans()),
        gamma=draw(st.sampled_from([0.5, 0.95])),
        room=draw(st.sampled_from([0.0, 1.0, 4.0])),
    )


@settings(PROPERTY, max_examples=100)
@given(situations(), st.sampled_from([0.05, 0.5, 2.0]), st.sampled_from([0.0, 0.01]), st.booleans())
def test_states_equal_an_interior_point_method(situation, epsilon, margin, pin):
    close, floor = epsilon - margin, epsilon + margin
    T, gap, loss = situation.solve(close, floor, pin=pin)
    total = 0.0
    for i, s in enumerate(situation.states):
        expected = situation.oracle(s, close, floor, pin=pin)
        some, left = situation.allowed[s], ~situation.allowed[s]
        assert (T[s, left] == -1).all()  # actions that do not exist are not touched
        if abs(gap[i]) < 1e-7:
            continue  # on the edge
        assert (gap[i] <= 0) == (expected is not None), (gap[i], expected)
        if expected is None:
            assert loss == np.inf
            continue
        least, by_solver = expected
        rows = T[s, some]
        assert rows.min() >= 0
        np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=0, atol=1e-12)
        weight = situation.N[s, some] + situation.delta
        own = (weight * (rows - weight / weight.sum(axis=1, keepdims=True)) ** 2).sum()
        assert own == pytest.approx(least, abs=1e-8)
        total += own
        if situation.delta == 1 and not pin:
            np.testing.assert_allclose(rows, by_solver, rtol=0, atol=1e-4)
        x = situation.R[s, some] + situation.gamma * rows @ situation.V
        good = situation.valid[s, some]
        assert np.ptp(x[good]) <= close + 1e-9
        assert x[~good].max(initial=-np.inf) <= x[good].min() - floor + 1e-9
        if pin:
            assert x[good].max() == pytest.approx(situation.V[s], abs=1e-9)
    if (gap < -1e-7).all():
        assert loss == pytest.approx(total, abs=1e-9)


def test_gaps_say_how_much_is_missing():
    # Discount 0: x = R. Valid 0 and 1 at 5 and 3; invalid 2 at 4.5.
    situation = Situation(np.random.default_rng(0), 2, 3, 0.1, masked=False, ties=False, gamma=0.0, room=0.0)
    situation.states = np.array([0])
    situation.valid[1] = False
    situation.R[0] = [5.0, 3.0, 4.5]
    situation.valid[0] = [True, True, False]
    _, gap, loss = situation.solve(0.5, 0.5, pin=False)
    # m >= 4.5 + 0.5 for the invalid one, m <= 3 for valid 1: 2 missing
    assert gap[0] == pytest.approx(2.0)
    assert loss == np.inf
    situation.R[0, 2] = 2.0
    situation.V[0] = 5.0
    _, gap, loss = situation.solve(2.5, 0.5, pin=True)  # m = 3, max = 5 = V
    assert gap[0] <= 0
    assert loss == pytest.approx(0)
    situation.V[0] = 5.25
    _, gap, _ = situation.solve(2.5, 0.5, pin=True)  # no valid action reaches 5.25
    assert gap[0] == pytest.approx(0.25)


# -------------------------------------------------------------------------------------------------- all states


def random_program(rng, S, A, epsilon, delta, margin=1e-6):
    N = rng.multinomial(6, np.ones(S) / S, size=(S, A)) * (rng.random((S, A)) < 0.5)[..., None]
    if not N.any():
        N[0, 0, 0] = 1
    counts = Counts(N)
    expert = ExpertActions.observed(counts)
    task = Task(reward=rng.normal(size=S), discount=0.9)
    program = Program.of(counts, task, expert, epsilon, delta, margin)
    return program, Constraints.of(expert, task), counts


@settings(PROPERTY, max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from([0.02, 0.2, 1.0]), DELTAS)
def test_the_whole_program_equals_one_quadratic_program(seed, epsilon, delta):
    pytest.importorskip("cvxpy")
    from bitl.estimators.itl_cvxpy import solve_monolithic

    rng = np.random.default_rng(seed)
    program, constraints, counts = random_program(rng, 6, 3, epsilon, delta)
    V = rng.normal(size=6) * 4
    T = program.T_mle.copy()
    loss, gap = program.solve(V, T, pin=False)
    if not np.isfinite(loss):
        assert gap.max() > 0
        return
    tight = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12, "max_iter": 200}
    by_solver, least = solve_monolithic(program, constraints, [V], **tight)
    assert loss == pytest.approx(least, abs=1e-8)
    assert oracle.loss(T, counts.N, delta) == pytest.approx(loss, abs=1e-9)
    if delta == 1:
        np.testing.assert_allclose(T, by_solver, rtol=0, atol=1e-4)
    Q = program.R + program.gamma * T @ V
    assert constraints.excess(Q, epsilon).max(initial=-np.inf) <= -1e-6 + 1e-10


@settings(PROPERTY, max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from([0.02, 0.2, 1.0]), DELTAS)
def test_a_pinned_answer_has_the_values_it_was_pinned_to(seed, epsilon, delta):
    rng = np.random.default_rng(seed)
    program, _, counts = random_program(rng, 6, 3, epsilon, delta)
    T = program.T_mle.copy()
    # values that are optimal at unvisited states: of a model that has T_MLE there and anything elsewhere
    T[program.states] = rng.dirichlet(np.ones(6), size=(len(program.states), 3))
    V = planning.value_iteration(T, program.R, program.gamma, program.allowed, 1e-13)
    loss, _ = program.solve(V, T, pin=True)
    if np.isfinite(loss):
        again = planning.value_iteration(T, program.R, program.gamma, program.allowed, 1e-13)
        np.testing.assert_allclose(again, V, rtol=0, atol=1e-9)
        amounts = oracle.misses(T, program.R, program.gamma, program.allowed, program.valid, epsilon)
        assert max(amounts.values(), default=0.0) <= 0
        assert oracle.loss(T, counts.N, delta) == pytest.approx(loss, abs=1e-9)
