r"""What happens next: the next-state probabilities :math:`T(\cdot \mid s, a)` that several methods have learned.

The question is most telling for an action that was never taken in a state. The data alone say nothing there, and MLE
answers with the uniform distribution; what the others answer is what the experts' competence tells them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..errors import DataError
from ..estimate import Estimate
from ..labels import Labels
from ..posterior.posterior import Posterior
from . import style

UNIFORM = 1e-9  # relative; rows that differ by no more than rounding say nothing about the next state
WIDTH = 40  # characters of a state's name on one line


@dataclass(frozen=True, eq=False)
class Prediction:
    """What one method says: arrays ``[K]`` over the listed states, the last entry for all others together."""

    method: str
    probability: FloatArray  #: of an estimate; of a posterior its mean
    low: FloatArray | None  #: lower ends of the credible intervals; None for an estimate
    high: FloatArray | None
    uniform: bool  #: the same probability for every state: the method knows nothing here


@dataclass(frozen=True, eq=False)
class NextStates:
    """The answers of several methods to one question: where ``action`` leads from ``state``."""

    state: str
    action: str
    states: tuple[int, ...]  #: ids of the listed next states, the most probable first
    names: tuple[str, ...]  #: their names, then that of all others together
    num_states: int
    mass: float  #: probability inside the credible intervals
    predictions: tuple[Prediction, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per method and next state, for a table."""
        return [
            {
                "method": p.method,
                "next_state": name,
                "probability": float(p.probability[k]),
                "low": None if p.low is None else float(p.low[k]),
                "high": None if p.high is None else float(p.high[k]),
                "uniform": p.uniform,
            }
            for p in self.predictions
            for k, name in enumerate(self.names)
        ]


def next_states(
    learned: Mapping[str, Estimate | Posterior],
    *,
    state: int | str,
    action: int | str,
    top: int = 5,
    mass: float = 0.9,
    labels: Labels | None = None,
) -> NextStates:
    """Return the next-state probabilities of one state and action under several methods.

    Parameters
    ----------
    learned
        Estimates and posteriors by the name of their method.
    state, action
        By number or by name.
    top
        How many next states to list: those to which any method that knows something gives the most; the rest is
        lumped together as "other".
    mass
        Posterior probability inside the credible intervals.
    labels
        Names of states and actions, by default those of the first method.

    Examples
    --------
    >>> T = np.array([[[0.5, 0.5], [0.1, 0.9]], [[0.0, 1.0], [0.0, 1.0]]])
    >>> answer = next_states({"mine": Estimate(T, "mine")}, state=0, action=1, top=1)
    >>> answer.names, answer.predictions[0].probability
    (('state 1', 'other (1 state)'), array([0.9, 0.1]))
    """
    if not learned:
        raise DataError("There is no method to compare; pass at least one estimate or posterior.")
    first = next(iter(learned.values()))
    labels = labels or first.labels
    S, A = first.T.shape[-3:-1]
    s, a = labels.state_id(state), labels.action_id(action)
    if s >= S or a >= A:
        raise DataError(f"The model has {S} states and {A} actions. Got state {s} and action {a}.")
    mass = _validate.real(mass, "mass", low=0, high=1, ends="()")
    draws = {name: _draws(name, one, s, a, (S, A)) for name, one in learned.items()}
    order = _ranked(draws)[: min(_validate.positive_int(top, "top"), S)]
    left = S - len(order)
    names = [labels.state(int(i)) for i in order] + [f"other ({left} state{'' if left == 1 else 's'})"]
    return NextStates(
        labels.state(s),
        labels.action(a),
        tuple(int(i) for i in order),
        tuple(names),
        S,
        mass,
        tuple(_predict(name, draws[name], order, mass, isinstance(learned[name], Posterior)) for name in draws),
    )


def _draws(name: str, learned: Estimate | Posterior, s: int, a: int, size: tuple[int, int]) -> FloatArray:
    """Return the row of every draw ``[draw, S]``; of an estimate, one."""
    if learned.T.shape[-3:-1] != size:
        raise DataError(f"The model of {name} must have {size[0]} states and {size[1]} actions like the first one.")
    row = learned.T[..., s, a, :]
    return row if row.ndim == 2 else row[None]


def _is_uniform(draws: FloatArray) -> bool:
    return bool(np.ptp(draws, axis=1).max() <= UNIFORM)


def _ranked(draws: Mapping[str, FloatArray]) -> Any:
    """Order the states by the largest probability that a method which knows something gives them."""
    means = [rows.mean(axis=0) for rows in draws.values() if not _is_uniform(rows)]
    weight = np.max(means, axis=0) if means else -np.arange(next(iter(draws.values())).shape[1])
    return np.argsort(-weight, kind="stable")


def _predict(name: str, draws: FloatArray, order: Any, mass: float, posterior: bool) -> Prediction:
    shown = draws[:, order]
    rest = np.delete(draws, order, axis=1).sum(axis=1, keepdims=True)
    shown = np.concatenate([shown, rest], axis=1)
    mean, uniform = shown.mean(axis=0), _is_uniform(draws)
    if not posterior:
        return Prediction(name, mean, None, None, uniform)
    low, high = np.quantile(shown, [(1 - mass) / 2, (1 + mass) / 2], axis=0)
    return Prediction(name, mean, low, high, uniform)


def draw_next_states(answer: NextStates, *, note: str = "") -> Any:
    """Draw one panel per method: bars are probabilities, whiskers credible intervals, the dashed line knows nothing.

    Parameters
    ----------
    answer
        From :func:`next_states`.
    note
        A line below the title, such as how often the action was seen in this state.
    """
    plt = style.pyplot()
    number, K = len(answer.predictions), len(answer.states)
    tops = [float((p.probability if p.high is None else p.high)[:K].max()) for p in answer.predictions]
    limit = min(1.05, 1.4 * max(*tops, 1 / answer.num_states))
    with plt.rc_context(style.LABELLED):
        size = (2.9 + 1.45 * number, 0.42 * (K + 1) + 1.7)
        figure, axes = plt.subplots(1, number, figsize=size, sharey=True, sharex=True, squeeze=False)
        for axis, prediction in zip(axes[0], answer.predictions, strict=True):
            _panel(axis, prediction, K, answer.num_states, limit)
        y = np.arange(K + 1)
        axes[0, 0].set_yticks(y, [_wrap(name) for name in answer.names], fontsize=7.5)
        axes[0, 0].set_ylim(K + 0.6, -0.6)
        axes[0, 0].set_ylabel("next state")
        figure.supxlabel(
            f"probability; whiskers: {100 * answer.mass:g} % credible interval of a posterior, bar: its mean; "
            f"dashed: uniform, 1/{answer.num_states}, what one says who knows nothing",
            fontsize=8,
        )
        title = f"After “{answer.action}” in: {answer.state}"
        figure.suptitle(title + (f"\n{note}" if note else ""), fontsize=10)
        figure.tight_layout()
    return figure


def _wrap(name: str) -> str:
    """Break a long name, after a comma where it has some."""
    lines = [""]
    for piece in name.replace(", ", ",\n").split("\n"):
        longer = f"{lines[-1]} {piece}".strip()
        lines[-1:] = [longer] if len(longer) <= WIDTH else [lines[-1], piece]
    return "\n".join("\n".join(textwrap.wrap(line, WIDTH)) for line in lines if line)


def _panel(axis: Any, p: Prediction, K: int, num_states: int, limit: float) -> None:
    colour = style.METHOD_COLOURS.get(p.method, style.BLUE)
    y = np.arange(K)
    axis.barh(y, p.probability[:K], height=0.62, color=colour, alpha=0.35 if p.uniform else 0.75)
    if p.low is not None and p.high is not None:
        axis.hlines(y, p.low[:K], p.high[:K], color="black", linewidth=1.2, zorder=3)
        axis.plot(np.concatenate([p.low[:K], p.high[:K]]), np.tile(y, 2), "|", color="black", markersize=5, zorder=3)
    ends = (p.probability if p.high is None else p.high)[:K]
    for k in range(K):
        value = p.probability[k]
        right = ends[k] > 0.75 * limit  # no room beyond the bar
        place = {"x": limit, "ha": "right"} if right else {"x": max(ends[k], 1 / num_states) + 0.03 * limit}
        axis.text(
            y=k - (0.38 if right else 0), s=f"{value:.{2 if limit > 0.15 else 3}f}", va="center", fontsize=7, **place
        )
    axis.axvline(1 / num_states, color="#555555", linewidth=0.9, linestyle="--")
    axis.axhline(K - 0.5, color="#bbbbbb", linewidth=0.7)
    rest = f"{p.probability[K]:.2f}"
    if p.low is not None and p.high is not None:
        rest += f" [{p.low[K]:.2f}, {p.high[K]:.2f}]"
    axis.text(0.02 * limit, K, rest, va="center", fontsize=7.5)
    axis.set_xlim(0, limit)
    axis.tick_params(labelsize=8)
    axis.set_title(p.method + ("\n(uniform)" if p.uniform else "\n"), fontsize=9)
