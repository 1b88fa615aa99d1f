"""Compiled loops of ITL's linearised programs; the mathematics is in :mod:`bitl.estimators.itl`.

A *path* is what one row of T can do: for a row with weights w and target t0, and u = gamma V,

    f(y) = min { sum_j w_j (t_j - t0_j)^2 : t in the simplex, t . u = y }

is convex and piecewise quadratic. Lowering y from t0 . u, the multiplier lambda = -f'(y) rises from 0; on a piece with
support A and v_j = 1 / (2 w_j),

    t_j = t0_j - v_j (c + lambda (u_j - ubar)),   ubar = sum_A v u / sum_A v,   c = (sum_A t0 - 1) / sum_A v
    y   = P - lambda D,   P = sum_A t0 u - c sum_A v u,   D = sum_A v (u - ubar)^2

The next entry to leave A is the one whose t_j reaches 0 first. It has u_j > ubar, so ubar falls and no entry that left
returns. Raising y is lowering -y for -u. Entries without data share one weight and one target and leave in the order of
u, so only the few observed entries of a row need a look of their own.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

jit: Any = nb.njit(cache=True, nogil=True, fastmath={"contract", "nsz"})


@jit
def row_path(u, order, index, weight, target, weight0, target0, lam, y, f):
    """Trace one row's path downwards; ``order`` sorts ``u``. Returns the number of breakpoints written, at least 1.

    ``index, weight, target`` describe the observed entries, ``weight0`` and ``target0`` all others.
    """
    S, K = u.shape[0], index.shape[0]
    observed = np.zeros(S, np.bool_)
    active = np.ones(K, np.bool_)
    v0 = 0.5 / weight0
    n0, z1, z2 = S - K, 0.0, 0.0
    ov, ovu, ovuu, ot, otu = 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(K):
        observed[index[k]] = True
        v, x = 0.5 / weight[k], u[index[k]]
        ov += v
        ovu += v * x
        ovuu += v * x * x
        ot += target[k]
        otu += target[k] * x
    for j in range(S):
        if not observed[j]:
            z1 += u[j]
            z2 += u[j] * u[j]
    lowest = u[order[0]]
    spread = (u[order[S - 1]] - lowest) * 1e-13
    top = S - 1
    lam[0], y[0], f[0] = 0.0, target0 * z1 + otu, 0.0
    length = 1
    while True:
        while top >= 0 and observed[order[top]]:
            top -= 1
        v_sum = n0 * v0 + ov
        vu = v0 * z1 + ovu
        mean = vu / v_sum
        c = (n0 * target0 + ot - 1.0) / v_sum
        leaver, best = -2, np.inf
        if n0 > 0 and u[order[top]] - lowest > spread and u[order[top]] > mean:
            leaver, best = -1, (target0 / v0 - c) / (u[order[top]] - mean)
        for k in range(K):
            x = u[index[k]]
            if active[k] and x - lowest > spread and x > mean:
                at = (target[k] * 2.0 * weight[k] - c) / (x - mean)
                if at < best:
                    leaver, best = k, at
        if leaver == -2:
            return length
        D = max(v0 * z2 + ovuu - mean * vu, 0.0)
        best = max(best, lam[length - 1])
        lam[length] = best
        y[length] = min(target0 * z1 + otu - c * vu - best * D, y[length - 1])
        f[length] = f[length - 1] + 0.5 * (best + lam[length - 1]) * (y[length - 1] - y[length])
        length += 1
        if leaver == -1:
            x = u[order[top]]
            n0 -= 1
            z1 -= x
            z2 -= x * x
            top -= 1
        else:
            active[leaver] = False
            v, x = 0.5 / weight[leaver], u[index[leaver]]
            ov -= v
            ovu -= v * x
            ovuu -= v * x * x
            ot -= target[leaver]
            otu -= target[leaver] * x


@jit
def on_path(lam, y, f, length, at):
    """Return (lambda, -d lambda / d y, f) at a value ``at`` that lies on the path or above its start."""
    if at >= y[0]:
        return 0.0, 0.0, 0.0
    if at <= y[length - 1]:
        return lam[length - 1], 0.0, f[length - 1]
    low, high = 0, length - 1  # y[low] > at >= y[high]
    while high - low > 1:
        middle = (low + high) // 2
        if y[middle] > at:
            low = middle
        else:
            high = middle
    width = y[low] - y[high]
    slope = (lam[high] - lam[low]) / width
    here = lam[low] + slope * (y[low] - at)
    return here, slope, f[low] + 0.5 * (lam[low] + here) * (y[low] - at)


@jit
def fill_row(u, index, weight, target, weight0, target0, lam, out):
    """Write the row that minimises sum w (t - t0)^2 + lam (t . u) over the simplex."""
    S, K = u.shape[0], index.shape[0]
    if lam == 0.0:
        out[:] = target0
        for k in range(K):
            out[index[k]] = target[k]
        return
    out[:] = target0 - 0.5 / weight0 * lam * u
    alive = np.ones(S, np.bool_)
    v = np.full(S, 0.5 / weight0)
    for k in range(K):
        j = index[k]
        out[j] = target[k] - 0.5 / weight[k] * lam * u[j]
        v[j] = 0.5 / weight[k]
    while True:  # drop what is negative and share out the rest, until nothing is
        total, share = -1.0, 0.0
        for j in range(S):
            if alive[j]:
                total += out[j]
                share += v[j]
        nu = total / share
        dropped = False
        for j in range(S):
            if alive[j] and out[j] - nu * v[j] < 0.0:
                alive[j] = False
                dropped = True
        if not dropped:
            break
    total = 0.0
    for j in range(S):
        out[j] = max(out[j] - nu * v[j], 0.0) if alive[j] else 0.0
        total += out[j]
    for j in range(S):
        out[j] /= total


@jit
def row_value(paths, p, at):
    """Look up a path by its number: (lambda, curvature, f) at the value ``at``."""
    lam, y, f, length = paths
    return on_path(lam[p], y[p], f[p], length[p], at)


@jit
def pull(m, top, moves, floor_gap, rows, paths, pinned):
    """Derivative and curvature at m of the state's loss, and the loss itself.

    Valid rows must lie in [m, top] (where ``moves``: [m, m + top]), others at or below m - floor_gap; the row
    ``pinned`` is left out.
    """
    valid, R, x0, low, up = rows
    g, h, total = 0.0, 0.0, 0.0
    high = m + top if moves else top
    for r in range(R.shape[0]):
        if r == pinned:
            continue
        if valid[r] and x0[r] < m:
            a, b, c = row_value(paths, up[r], R[r] - m)
            g, h, total = g + a, h + b, total + c
        elif valid[r] and x0[r] > high:
            a, b, c = row_value(paths, low[r], high - R[r])
            total += c
            if moves:
                g, h = g - a, h + b
        elif not valid[r] and x0[r] > m - floor_gap:
            a, b, c = row_value(paths, low[r], m - floor_gap - R[r])
            g, h, total = g - a, h + b, total + c
    return g, h, total


@jit
def best_m(first, last, top, moves, floor_gap, rows, paths, pinned):
    """Minimise the convex loss over m in [first, last] by Newton's method inside a shrinking bracket.

    It starts where the lowest valid row would be by itself. An end of the interval is looked at only when a step leads
    there; ``below`` and ``above`` say on which sides of the minimum a point has been seen.
    """
    valid, _, x0, _, _ = rows
    m = last
    for r in range(x0.shape[0]):
        if valid[r]:
            m = min(m, x0[r])
    m = max(m, first)
    low, high, below, above = first, last, False, False
    g, h, total = pull(m, top, moves, floor_gap, rows, paths, pinned)
    for _ in range(200):
        if g < 0.0:
            low, below = m, True
        else:
            high, above = m, True
        if abs(g) <= 1e-15 * h * (1.0 + abs(m)) or (g < 0.0 and m >= last) or (g > 0.0 and m <= first):
            break
        step = m - g / h if h > 0.0 else high if g < 0.0 else low
        if (step >= high and above) or (step <= low and below):
            step = 0.5 * (low + high)
        step = min(max(step, low), high)
        if step == m:
            break
        m = step
        g, h, total = pull(m, top, moves, floor_gap, rows, paths, pinned)
    return m, total


@jit
def plain_state(close_gap, floor_gap, u_min, u_max, rows, paths):
    """Solve a state's plain program: returns (gap, loss, m, top, -1); a gap above 0 says that it is infeasible."""
    valid, R, _, _, _ = rows
    first, last = -np.inf, np.inf
    for r in range(R.shape[0]):
        if valid[r]:
            first = max(first, R[r] + u_min - close_gap)
            last = min(last, R[r] + u_max)
        else:
            first = max(first, R[r] + u_min + floor_gap)
    if first > last:
        return first - last, np.inf, 0.0, 0.0, -1
    m, loss = best_m(first, last, close_gap, True, floor_gap, rows, paths, -1)
    return first - last, loss, m, m + close_gap, -1


@jit
def pinned_state(top, close_gap, floor_gap, u_min, u_max, rows, paths):
    """Solve a state's pinned program: as above, and last the row whose value is ``top``, the one of least loss."""
    valid, R, x0, low, up = rows
    first, last, reach, gap = top - close_gap, top, -np.inf, -np.inf
    for r in range(R.shape[0]):
        if valid[r]:
            last = min(last, R[r] + u_max)
            reach = max(reach, R[r] + u_max)
            gap = max(gap, R[r] + u_min - top)
        else:
            first = max(first, R[r] + u_min + floor_gap)
    gap = max(gap, first - last, top - reach)
    if gap > 0.0:
        return gap, np.inf, 0.0, 0.0, -1
    m, least, chosen = 0.0, np.inf, -1
    for b in range(R.shape[0]):
        if valid[b] and R[b] + u_max >= top:
            if x0[b] < top:
                own = row_value(paths, up[b], R[b] - top)[2]
            else:
                own = row_value(paths, low[b], top - R[b])[2]
            m_b, rest = best_m(first, last, top, False, floor_gap, rows, paths, b)
            if own + rest < least:
                m, least, chosen = m_b, own + rest, b
    return gap, least, m, top, chosen


@jit
def weigh(pointer, count, delta, S):
    """Weights and targets of all observed entries, and each row's target for the others."""
    weight, target = count + delta, np.empty(count.shape[0])
    elsewhere = np.empty(pointer.shape[0] - 1)
    for row in range(elsewhere.shape[0]):
        total = S * delta
        for k in range(pointer[row], pointer[row + 1]):
            total += count[k]
        elsewhere[row] = delta / total
        for k in range(pointer[row], pointer[row + 1]):
            target[k] = weight[k] / total
    return weight, target, elsewhere


@jit
def solve_states(
    states, V, R, valid, allowed, gamma, close_gap, floor_gap, pin, pointer, index, count, delta, T, gap, loss
):
    """Solve the linearised program of every state in ``states`` at the values V; rows of T are overwritten.

    With ``pin`` the largest valid value of a state must equal V[s]. ``gap[i]`` becomes the amount by which state i's
    program is infeasible (at most 0 where it was solved), ``loss[i]`` its loss. An empty T is not written: the losses
    alone are cheaper.
    """
    S, A = R.shape
    shift = 0.5 * gamma * (V.min() + V.max())  # a shift of u shifts every y alike; around 0 the sums cancel least
    u = gamma * V - shift
    order = np.argsort(u)
    down, backwards = -u, order[::-1].copy()
    u_min, u_max = u[order[0]], u[order[S - 1]]
    lam, y, f = np.empty((2 + 2 * A, S + 1)), np.empty((2 + 2 * A, S + 1)), np.empty((2 + 2 * A, S + 1))
    length = np.zeros(2 + 2 * A, np.int64)
    paths = (lam, y, f, length)
    weight, target, elsewhere = weigh(pointer, count, delta, S)
    # rows without data differ by their reward alone: they share paths 0 and 1
    length[0] = row_path(u, order, index[:0], weight[:0], target[:0], delta, 1.0 / S, lam[0], y[0], f[0])
    length[1] = row_path(down, backwards, index[:0], weight[:0], target[:0], delta, 1.0 / S, lam[1], y[1], f[1])
    action, low, up = np.empty(A, np.int64), np.empty(A, np.int64), np.empty(A, np.int64)
    ok, reward, x0 = np.empty(A, np.bool_), np.empty(A), np.empty(A)
    for i in range(states.shape[0]):
        s = states[i]
        n, used = 0, 2
        for a in range(A):
            if not allowed[s, a]:
                continue
            first, last, t0 = pointer[s * A + a], pointer[s * A + a + 1], elsewhere[s * A + a]
            action[n], ok[n], reward[n], low[n], up[n] = a, valid[s, a], R[s, a] + shift, 0, 1
            if last > first:
                j, w, t = index[first:last], weight[first:last], target[first:last]
                length[used] = row_path(u, order, j, w, t, delta, t0, lam[used], y[used], f[used])
                low[n] = used
                used += 1
                if ok[n]:
                    length[used] = row_path(down, backwards, j, w, t, delta, t0, lam[used], y[used], f[used])
                    up[n] = used
                    used += 1
            x0[n] = reward[n] + y[low[n], 0]
            n += 1
        rows = (ok[:n], reward[:n], x0[:n], low[:n], up[:n])
        if pin:
            gap[i], loss[i], m, top, chosen = pinned_state(V[s], close_gap, floor_gap, u_min, u_max, rows, paths)
        else:
            gap[i], loss[i], m, top, chosen = plain_state(close_gap, floor_gap, u_min, u_max, rows, paths)
        if gap[i] > 0.0 or T.shape[0] == 0:
            continue
        for r in range(n):
            want = top if r == chosen else min(max(x0[r], m), top) if ok[r] else min(x0[r], m - floor_gap)
            multiplier = 0.0
            if want < x0[r]:
                multiplier = row_value(paths, low[r], want - reward[r])[0]
            elif want > x0[r]:
                multiplier = -row_value(paths, up[r], reward[r] - want)[0]
            row = s * A + action[r]
            first, last = pointer[row], pointer[row + 1]
            j, w, t = index[first:last], weight[first:last], target[first:last]
            fill_row(u, j, w, t, delta, elsewhere[row], multiplier, T[s, action[r]])
