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

Where the reward may move too, at a price of kappa (r - r0)^2, a multiplier lambda lowers it by lambda / (2 kappa): the
path stays the same in lambda, y gives way by that much more, f grows by lambda^2 / (4 kappa), and the path never ends.
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
    # Values are taken from the lowest one, and sums are built from below: nothing large is ever subtracted, so nearly
    # equal values and weights of very different size cost no digits.
    S, K = u.shape[0], index.shape[0]
    lowest = u[order[0]]
    spread = (u[order[S - 1]] - lowest) * 1e-13
    observed = np.zeros(S, np.bool_)
    active = np.ones(K, np.bool_)
    for k in range(K):
        observed[index[k]] = True
    v0 = 0.5 / weight0
    x0, sum0, square0 = np.empty(S - K), np.empty(S - K + 1), np.empty(S - K + 1)  # of the n lowest unseen values:
    n0, sum0[0], square0[0] = 0, 0.0, 0.0  # the values, their sum, their sum of squares around the mean (Welford)
    for i in range(S):
        if not observed[order[i]]:
            x = u[order[i]] - lowest
            x0[n0] = x
            away = x - sum0[n0] / n0 if n0 > 0 else 0.0
            sum0[n0 + 1] = sum0[n0] + x
            square0[n0 + 1] = square0[n0] + away * away * n0 / (n0 + 1.0)
            n0 += 1
    length, refresh = 0, True
    while True:
        if refresh:  # the observed entries that are left
            ov, ovx, ot, otx, osq = 0.0, 0.0, 0.0, 0.0, 0.0
            for k in range(K):
                if active[k]:
                    v, x = 0.5 / weight[k], u[index[k]] - lowest
                    if ov > 0.0:
                        away = x - ovx / ov
                        osq += away * away * ov * v / (ov + v)
                    ov += v
                    ovx += v * x
                    ot += target[k]
                    otx += target[k] * x
            refresh = False
        v_sum = n0 * v0 + ov
        vx = v0 * sum0[n0] + ovx
        start = target0 * sum0[n0] + otx
        if length == 0:
            lam[0], y[0], f[0] = 0.0, lowest + start, 0.0
            length = 1
        c = (n0 * target0 + ot - 1.0) / v_sum
        leaver, best = -2, np.inf
        if n0 > 0 and x0[n0 - 1] > spread:
            x = x0[n0 - 1]
            above = (v0 * (n0 * x - sum0[n0]) + (ov * x - ovx)) / v_sum
            if above > 0.0:
                leaver, best = -1, (target0 / v0 - c) / above
        for k in range(K):
            if active[k]:
                x = u[index[k]] - lowest
                above = (v0 * (n0 * x - sum0[n0]) + (ov * x - ovx)) / v_sum
                if x > spread and above > 0.0:
                    at = (target[k] * 2.0 * weight[k] - c) / above
                    if at < best:
                        leaver, best = k, at
        if leaver == -2:
            return length
        D = v0 * square0[n0] + osq
        if n0 > 0 and ov > 0.0:
            away = sum0[n0] / n0 - ovx / ov
            D += away * away * (n0 * v0) * ov / v_sum
        best = max(best, lam[length - 1])
        lam[length] = best
        y[length] = max(min(lowest + (start - c * vx - best * D), y[length - 1]), lowest)
        f[length] = f[length - 1] + 0.5 * (best + lam[length - 1]) * (y[length - 1] - y[length])
        length += 1
        if leaver == -1:
            n0 -= 1
        else:
            active[leaver] = False
            refresh = True


@jit
def give_way(lam, y, f, length, give, reach):
    """Let the reward move along a path, by ``give`` per unit of the multiplier, and extend the path by ``reach``."""
    if give == 0.0:
        return length
    for k in range(length):
        y[k] -= give * lam[k]
        f[k] += 0.5 * give * lam[k] * lam[k]
    lam[length] = lam[length - 1] + reach / give
    y[length] = y[length - 1] - reach
    f[length] = f[length - 1] + 0.5 * (lam[length - 1] + lam[length]) * reach
    return length + 1


@jit
def on_path(paths, p, at):
    """Return (lambda, -d lambda / d y, f) of path p at a value ``at`` that lies on it or above its start.

    ``paths`` is (lam, y, f, length), one path a row; entries are addressed in place, since views of rows cost time.
    """
    lam, y, f, length = paths
    end = length[p] - 1
    if at >= y[p, 0]:
        return 0.0, 0.0, 0.0
    if at <= y[p, end]:
        return lam[p, end], 0.0, f[p, end]
    low, high = 0, end  # y[low] > at >= y[high]
    while high - low > 1:
        middle = (low + high) // 2
        if y[p, middle] > at:
            low = middle
        else:
            high = middle
    slope = (lam[p, high] - lam[p, low]) / (y[p, low] - y[p, high])
    here = lam[p, low] + slope * (y[p, low] - at)
    return here, slope, f[p, low] + 0.5 * (lam[p, low] + here) * (y[p, low] - at)


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
            a, b, c = on_path(paths, up[r], R[r] - m)
            g, h, total = g + a, h + b, total + c
        elif valid[r] and x0[r] > high:
            a, b, c = on_path(paths, low[r], high - R[r])
            total += c
            if moves:
                g, h = g - a, h + b
        elif not valid[r] and x0[r] > m - floor_gap:
            a, b, c = on_path(paths, low[r], m - floor_gap - R[r])
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
    rounding = 1e-12 * (abs(top) + u_max - u_min)  # values that were planned or solved for may touch their bounds
    if gap > rounding:
        return gap, np.inf, 0.0, 0.0, -1
    gap = min(gap, 0.0)
    m, least, chosen = 0.0, np.inf, -1
    for b in range(R.shape[0]):
        if valid[b] and R[b] + u_max >= top - rounding:
            if x0[b] < top:
                own = on_path(paths, up[b], R[b] - top)[2]
            else:
                own = on_path(paths, low[b], top - R[b])[2]
            m_b, rest = best_m(first, last, top, False, floor_gap, rows, paths, b)
            if own + rest < least:
                m, least, chosen = m_b, own + rest, b
    return gap, least, m, top, chosen


@jit
def shifted_state(top, price, close_gap, floor_gap, u_min, u_max, rows, paths):
    """Solve a pinned program whose rewards may shift together by d at a price of price d^2; returns d as well.

    A scan finds the best stretch (the loss is a minimum of convex functions of d), golden section the point in it.
    """
    width = u_max - u_min + close_gap + floor_gap
    best = pinned_state(top, close_gap, floor_gap, u_min, u_max, rows, paths)
    d, least, feasible = 0.0, best[1], best[0] <= 0.0
    for k in range(-32, 33):
        shift = width * k / 32.0
        answer = pinned_state(top - shift, close_gap, floor_gap, u_min, u_max, rows, paths)
        if answer[0] <= 0.0 and (not feasible or answer[1] + price * shift * shift < least):
            d, least, feasible = shift, answer[1] + price * shift * shift, True
    a, b, golden = d - width / 32.0, d + width / 32.0, 0.6180339887498949
    for _ in range(45):
        left, right = b - golden * (b - a), a + golden * (b - a)
        answer = pinned_state(top - left, close_gap, floor_gap, u_min, u_max, rows, paths)
        at_left = answer[1] + price * left * left
        answer = pinned_state(top - right, close_gap, floor_gap, u_min, u_max, rows, paths)
        at_right = answer[1] + price * right * right
        if at_left < least:
            d, least = left, at_left
        if at_right < least:
            d, least = right, at_right
        if at_left <= at_right:
            b = right
        else:
            a = left
    gap, _, m, high, chosen = pinned_state(top - d, close_gap, floor_gap, u_min, u_max, rows, paths)
    return gap, least, m, high, chosen, d


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
    states,
    V,
    R,
    valid,
    allowed,
    gamma,
    close_gap,
    floor_gap,
    pin,
    pointer,
    index,
    count,
    delta,
    T,
    gap,
    loss,
    price,
    shared,
    R_out,
):
    """Solve the linearised program of every state in ``states`` at the values V; rows of T are overwritten.

    With ``pin`` the largest valid value of a state must equal V[s]. ``gap[i]`` becomes the amount by which state i's
    program is infeasible (at most 0 where it was solved), ``loss[i]`` its loss. An empty T is not written: the losses
    alone are cheaper.

    With a finite ``price`` the rewards move too, each on its own or, if ``shared``, all of a state together; they are
    written to R_out.
    """
    S, A = R.shape
    shift = 0.5 * gamma * (V.min() + V.max())  # a shift of u shifts every y alike; around 0 the sums cancel least
    u = gamma * V - shift
    order = np.argsort(u)
    down, backwards = -u, order[::-1].copy()
    u_min, u_max = u[order[0]], u[order[S - 1]]
    give = 0.0 if shared or price == np.inf else 0.5 / price
    reach = 0.0
    if give > 0.0:
        reach = 10.0 * (u_max - u_min + close_gap + floor_gap + R.max() - R.min() + np.abs(V).max())
    lam, y, f = np.empty((2 + 2 * A, S + 2)), np.empty((2 + 2 * A, S + 2)), np.empty((2 + 2 * A, S + 2))
    length = np.zeros(2 + 2 * A, np.int64)
    paths = (lam, y, f, length)
    weight, target, elsewhere = weigh(pointer, count, delta, S)
    # rows without data differ by their reward alone: they share paths 0 and 1
    length[0] = row_path(u, order, index[:0], weight[:0], target[:0], delta, 1.0 / S, lam[0], y[0], f[0])
    length[1] = row_path(down, backwards, index[:0], weight[:0], target[:0], delta, 1.0 / S, lam[1], y[1], f[1])
    for p in range(2):
        length[p] = give_way(lam[p], y[p], f[p], length[p], give, reach)
    u_min, u_max = u_min - reach, u_max + reach
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
                length[used] = give_way(lam[used], y[used], f[used], length[used], give, reach)
                low[n] = used
                used += 1
                if ok[n]:
                    length[used] = row_path(down, backwards, j, w, t, delta, t0, lam[used], y[used], f[used])
                    length[used] = give_way(lam[used], y[used], f[used], length[used], give, reach)
                    up[n] = used
                    used += 1
            x0[n] = reward[n] + y[low[n], 0]
            n += 1
        rows = (ok[:n], reward[:n], x0[:n], low[:n], up[:n])
        moved = 0.0
        if pin and shared and price < np.inf:
            gap[i], loss[i], m, top, chosen, moved = shifted_state(
                V[s], price, close_gap, floor_gap, u_min, u_max, rows, paths
            )
        elif pin:
            gap[i], loss[i], m, top, chosen = pinned_state(V[s], close_gap, floor_gap, u_min, u_max, rows, paths)
        else:
            gap[i], loss[i], m, top, chosen = plain_state(close_gap, floor_gap, u_min, u_max, rows, paths)
        if gap[i] > 0.0 or T.shape[0] == 0:
            continue
        for r in range(n):
            want = top if r == chosen else min(max(x0[r], m), top) if ok[r] else min(x0[r], m - floor_gap)
            multiplier = 0.0
            if want < x0[r]:
                multiplier = on_path(paths, low[r], want - reward[r])[0]
            elif want > x0[r]:
                multiplier = -on_path(paths, up[r], reward[r] - want)[0]
            if price < np.inf:
                R_out[s, action[r]] = R[s, action[r]] + moved - give * multiplier
            row = s * A + action[r]
            first, last = pointer[row], pointer[row + 1]
            j, w, t = index[first:last], weight[first:last], target[first:last]
            fill_row(u, j, w, t, delta, elsewhere[row], multiplier, T[s, action[r]])
