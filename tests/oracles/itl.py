"""ITL by other roads: rows by bisection, states by an interior-point method, constraints counted one by one."""

import numpy as np
from scipy.sparse import csc_matrix, diags

from oracles import planning


def quadratic_program(weight, target, equal, equal_to, at_most, bound):
    """Minimise sum weight (t - target)^2 over t >= 0 with Clarabel; None if infeasible. Returns (t, loss)."""
    import clarabel

    n = len(weight)
    A = np.vstack([equal, at_most, -np.eye(n)])
    b = np.concatenate([equal_to, bound, np.zeros(n)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    settings.max_iter = 200
    scale = 1.0 / np.mean(weight)
    answer = clarabel.DefaultSolver(
        csc_matrix(diags(2 * scale * weight)),
        -2 * scale * weight * target,
        csc_matrix(A),
        b,
        [clarabel.ZeroConeT(len(equal_to)), clarabel.NonnegativeConeT(len(bound) + n)],
        settings,
    ).solve()
    if "Infeasible" in str(answer.status):
        return None
    t = np.array(answer.x)
    return t, float((weight * (t - target) ** 2).sum())


def row_program(u, weight, target, y):
    """The least loss of a row with t . u = y."""
    return quadratic_program(weight, target, np.vstack([np.ones(len(u)), u]), [1.0, y], np.zeros((0, len(u))), [])


def row_at(u, weight, target, multiplier):
    """The row that minimises sum w (t - t0)^2 + multiplier t.u on the simplex, by bisection on the sum's multiplier."""

    def row(nu):
        return np.maximum(target - (multiplier * u + nu) / (2 * weight), 0.0)

    centre = -multiplier * u
    low = (centre - 2 * weight * (1 + np.abs(target))).min()
    high = (centre + 2 * weight * (1 + np.abs(target))).max()
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if row(middle).sum() > 1 else (low, middle)
    return row(low) / row(low).sum()


def state_program(R, V, gamma, valid, weight, target, close, floor, pin=None):
    """One state's program from the inequalities as the paper writes them; rows [n, S] of admissible actions only.

    With ``pin``, the largest valid value must be that: one program per action that may attain it, the best of them.
    """
    n, S = weight.shape

    def value(a):
        line = np.zeros(n * S)
        line[a * S : (a + 1) * S] = gamma * V
        return line

    lines, bounds = [], []
    for a in range(n):
        for b in range(n):
            if valid[a] and not valid[b]:  # R_a + x_a - R_b - x_b >= floor
                lines.append(value(b) - value(a))
                bounds.append(R[a] - R[b] - floor)
            if a != b and valid[a] and valid[b]:
                lines.append(value(a) - value(b))
                bounds.append(close - R[a] + R[b])
    sums = np.kron(np.eye(n), np.ones(S))
    problems = [([], [], [], [])]
    if pin is not None:
        good = np.flatnonzero(valid)
        problems = [([value(b)], [pin - R[b]], [value(a) for a in good], [pin - R[a] for a in good]) for b in good]
    found = []
    for equal, equal_to, more, more_bounds in problems:
        answer = quadratic_program(
            weight.ravel(),
            target.ravel(),
            np.vstack([sums, *equal]),
            np.concatenate([np.ones(n), equal_to]),
            np.array([*lines, *more]).reshape(-1, n * S),
            np.array([*bounds, *more_bounds]),
        )
        if answer is not None:
            found.append((answer[1], answer[0].reshape(n, S)))
    return min(found, key=lambda pair: pair[0]) if found else None


def misses(T, R, gamma, allowed, valid, epsilon):
    """By how much each inequality of the definition is missed: {(state, action, other, kind): amount}."""
    V = planning.value_iteration(T, R, gamma, allowed)
    Q = R + gamma * (T @ V)
    amounts = {}
    for s, a in np.argwhere(valid):
        for b in range(R.shape[1]):
            if allowed[s, b] and not valid[s, b]:
                amounts[int(s), int(a), b, "separation"] = epsilon - (Q[s, a] - Q[s, b])
            if valid[s, b] and a < b:
                amounts[int(s), int(a), b, "closeness"] = abs(Q[s, a] - Q[s, b]) - epsilon
    return amounts


def smoothed(N, delta):
    return (N + delta) / (N + delta).sum(axis=2, keepdims=True)


def loss(T, N, delta):
    return float(((N + delta) * (T - smoothed(N, delta)) ** 2).sum())
