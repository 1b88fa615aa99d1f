"""The figures of a report on one's own data."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._types import FloatArray
from ..metrics import learned_policy
from ..posterior.posterior import Posterior
from ..report import curves, style
from .case import Case
from .transfer import CARE, YES, Transfer
from .tune import Tuning

MOST = 30  # states in a figure; a report says which were left out


def busiest(case: Case, number: int = MOST) -> Any:
    """Return the most visited states, in the order of their ids."""
    visits = case.counts.visits.sum(axis=1)
    return np.sort(np.argsort(-visits, kind="stable")[:number])


def draw_policy(case: Case, learned: Any) -> Any:
    """Draw what the experts did (shade and number) and what the model would do (ring)."""
    plt = style.pyplot()
    states = busiest(case)
    visits = case.counts.visits
    total = visits.sum(axis=1, keepdims=True)
    share = np.divide(visits, total, out=np.full(visits.shape, np.nan), where=total > 0)
    policy = learned_policy(learned, case.task)
    outside = (policy > 0) & ~case.expert.valid & case.expert.visited[:, None]
    A = visits.shape[1]
    names = [case.labels.action(a) for a in range(A)]
    with plt.rc_context(style.LABELLED):
        figure, axis = plt.subplots(figsize=(min(9.0, 3.4 + 0.95 * A), 0.34 * len(states) + 1.7))
        axis.set_facecolor("#e6e6e6")
        axis.imshow(share[states], cmap="Blues", vmin=0, vmax=1.15, aspect="auto")
        for y, s in enumerate(states):
            for a in range(A):
                if visits[s, a]:
                    dark = share[s, a] > 0.6
                    axis.text(a, y, f"{100 * share[s, a]:.0f} %", ha="center", va="center", fontsize=7.5,
                              color="white" if dark else "black")  # fmt: skip
                if policy[s, a] > 0:
                    good = not outside[s, a]
                    axis.plot(a, y, marker="s", markersize=19, markerfacecolor="none", markeredgewidth=2.2,
                              markeredgecolor=style.ORANGE if good else style.VERMILLION,
                              linestyle="")  # fmt: skip
                    if not good:
                        axis.text(a + 0.36, y - 0.3, "✗", color=style.VERMILLION, fontsize=9, ha="center", va="center")
        axis.set_xticks(range(A), names, fontsize=8, rotation=30 if max(map(len, names)) > 9 else 0)
        axis.set_yticks(range(len(states)), [case.labels.state(int(s)) for s in states], fontsize=8)
        axis.set_xlabel("action")
        axis.set_ylabel("state")
        axis.set_title(f"What the experts did, and what {learned.method} would do", loc="left")
        handles = _policy_legend(plt, outside=bool(outside[states].any()), unseen=not case.expert.visited[states].all())
        figure.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, fontsize=8)
        figure.tight_layout()
    return figure


def _policy_legend(plt: Any, *, outside: bool, unseen: bool) -> list[Any]:
    """Return the entries that this figure needs."""
    frame = {"marker": "s", "markersize": 10, "markerfacecolor": "none", "markeredgewidth": 2, "linestyle": ""}
    label = "the model's choice (several: a tie)"
    handles = [
        plt.Rectangle((0, 0), 1, 1, facecolor="#6baed6", label="share of the experts' decisions"),
        plt.Line2D([], [], markeredgecolor=style.ORANGE, label=label, **frame),
    ]
    if outside:
        cross = {"marker": "x", "linestyle": "", "color": style.VERMILLION}
        handles.append(plt.Line2D([], [], label="... which the experts do not take", **cross))
    if unseen:
        grey = {"facecolor": "#e6e6e6", "edgecolor": "#999999"}
        handles.append(plt.Rectangle((0, 0), 1, 1, label="no decision seen", **grey))
    return handles


def draw_uncertainty(case: Case, posterior: Posterior, states: Any) -> Any:
    """Draw 90 % credible intervals of the value of some states, and how sure the best action is."""
    plt = style.pyplot()
    low, high = posterior.credible_interval("V", mass=0.9)
    middle = np.median(posterior.values(), axis=0)
    sure = posterior.policy().max(axis=1)
    best = posterior.policy().argmax(axis=1)
    y = np.arange(len(states))[::-1]
    with plt.rc_context(style.LABELLED):
        figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 0.36 * len(states) + 1.3), sharey=True)
        left.hlines(y, low[states], high[states], color=style.GREEN, linewidth=2.4)
        left.scatter(middle[states], y, color=style.GREEN, s=22, zorder=3)
        left.set_yticks(y, [case.labels.state(int(s)) for s in states], fontsize=8)
        left.set_xlabel("value of the state (dot: median, line: 90 % interval)")
        left.set_title("How much is it worth?", loc="left")
        right.barh(y, 100 * sure[states], color=style.SKY, height=0.6)
        for at, s in zip(y, states, strict=True):
            right.text(2, at, case.labels.action(int(best[s])), va="center", fontsize=8)
        right.set_xlim(0, 100)
        right.set_xlabel("draws in which this action is best (%)")
        right.set_title("What is best there, and how sure?", loc="left")
        figure.tight_layout()
    return figure


def draw_transfer(answers: list[Transfer]) -> Any:
    """Draw the predicted loss for the training goal and each new goal, with the limits of the verdict."""
    plt = style.pyplot()
    known = [answer for answer in answers if answer.new is not None and answer.train is not None]
    first = known[0].train
    assert first is not None  # noqa: S101
    rows = [("the experts' goal", first.share, style.BLUE)]
    rows += [(answer.name, answer.new.share, style.VERMILLION) for answer in known if answer.new is not None]
    y = np.arange(len(rows))[::-1]
    with plt.rc_context(style.LABELLED):
        figure, axis = plt.subplots(figsize=(7.0, 0.45 * len(rows) + 1.3))
        axis.barh(y, [100 * share for _, share, _ in rows], color=[colour for *_, colour in rows], height=0.55)
        top = max(100 * CARE * 1.4, *(115 * share for _, share, _ in rows))
        for at, (_, share, _) in zip(y, rows, strict=True):
            axis.text(100 * share + 0.01 * top, at, f"{100 * share:.1f} %", va="center", fontsize=8)
        for limit, word in ((YES, "yes"), (CARE, "with care")):
            axis.axvline(100 * limit, color="#555555", linewidth=0.9, linestyle="--")
            axis.text(100 * limit, len(rows) - 0.45, f"{word} ← ", ha="right", fontsize=8, color="#333333")
        axis.set_yticks(y, [name for name, *_ in rows])
        axis.set_xlim(0, top)
        axis.set_ylim(-0.5, len(rows) - 0.2)
        axis.set_xlabel("predicted loss: Bayesian regret as % of what separates the best policy from a random one")
        figure.tight_layout()
    return figure


def draw_tuning(tuning: Tuning) -> Any:
    """Draw held-out matching and, where it was estimated, the evidence over epsilon."""
    plt = style.pyplot()
    panels = 2 if any(row["log_evidence"] is not None for row in tuning.evidence) else 1
    x = tuning.epsilons
    with plt.rc_context(style.LABELLED):
        figure, axes = plt.subplots(panels, 1, figsize=(6.6, 2.9 * panels), sharex=True, squeeze=False)
        axis = axes[0, 0]
        scores = {
            f"{word} action of the experts" + ("" if name == "standard" else f", goal {name}"): values
            for found, word in (
                (tuning.matching.best_matching, "most frequent"),
                (tuning.matching.epsilon_matching, "a valid"),
            )
            for name, values in found.items()
        }
        curves.draw_matching(axis, x, scores)
        _mark(axis, tuning.by_matching)
        axis.set_ylabel("share of held-out states")
        axis.set_title(f"Held-out matching, {tuning.folds} folds by {tuning.by} (band: 95 % interval)", loc="left")
        axis.legend(fontsize=7.5, loc="upper left", bbox_to_anchor=(1.01, 1.0))
        if panels == 2:
            axis = axes[1, 0]
            known = [row for row in tuning.evidence if row["log_evidence"] is not None]
            axis.errorbar([r["epsilon"] for r in known], [r["log_evidence"] for r in known],
                          [r["error"] or 0.0 for r in known], marker="D", color=style.GREEN, capsize=2)  # fmt: skip
            _mark(axis, tuning.by_evidence)
            axis.set_ylabel("log evidence")
            axis.set_title("Evidence that the experts are epsilon-optimal (bars: Monte-Carlo error)", loc="left")
        axes[-1, 0].set_xlabel("epsilon (units of value; dotted: recommended)")
        if x.min() > 0 and x.max() > 10 * x.min():
            axes[-1, 0].set_xscale("log")
            axes[-1, 0].set_xticks(x, [f"{e:g}" for e in x], minor=False)
            axes[-1, 0].set_xticks([], minor=True)
        figure.tight_layout()
    return figure


def _mark(axis: Any, epsilon: float | None) -> None:
    if epsilon is not None:
        axis.axvline(epsilon, color="black", linestyle=":", linewidth=1.2)


def draw_coverage(case: Case) -> Any:
    """Draw how often each state was visited."""
    plt = style.pyplot()
    states = busiest(case)
    visits: FloatArray = case.counts.visits.sum(axis=1)[states]
    order = np.argsort(visits, kind="stable")
    with plt.rc_context(style.LABELLED):
        figure, axis = plt.subplots(figsize=(7.0, 0.27 * len(states) + 1.1))
        axis.barh(np.arange(len(states)), visits[order], color=style.SKY, height=0.65)
        for y, number in enumerate(visits[order]):
            axis.text(number, y, f" {number:.0f}" + (" (never seen)" if number == 0 else ""), va="center", fontsize=7.5)
        axis.set_yticks(range(len(states)), [case.labels.state(int(s)) for s in states[order]], fontsize=8)
        axis.set_xlabel("recorded decisions")
        axis.set_xlim(0, 1.12 * max(float(visits.max()), 1.0))
        figure.tight_layout()
    return figure
