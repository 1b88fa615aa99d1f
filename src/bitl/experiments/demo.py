"""The demo: one gridworld batch, every method that exists, side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import _files, _validate, metrics
from .._version import __version__
from ..estimate import Estimate
from ..estimators.joint import GOAL_REWARD
from ..expert import ExpertActions, epsilon_ball
from ..methods import Fit, Problem, methods, run
from ..planning import plan
from ..posterior.posterior import Posterior
from ..report import grid, page, style
from ..worlds import World, batch_by_coverage, gridworld

PER_ACTION = 10
ROUNDS = 7000  # a demo should not keep anyone waiting for runs that do not agree
ROWS = (
    # metric, label, format, which way is better
    ("best_matching", "best matching", "{:.2f}", max),
    ("epsilon_matching", "epsilon matching", "{:.2f}", max),
    ("normalised_value", "value, 0 to 1", "{:.3f}", max),
    ("best_matching_transfer", "transfer: best", "{:.2f}", max),
    ("epsilon_matching_transfer", "transfer: epsilon", "{:.2f}", max),
    ("normalised_value_transfer", "transfer: value", "{:.3f}", max),
    ("total_variation", "total variation", "{:.1f}", min),
    ("violations", "violations", "{:.1f}", min),
    ("violations_expert", "  expert reference", "{:.1f}", min),
    ("bayesian_regret", "Bayesian regret", "{:.2f}", None),
    ("bayesian_regret_transfer", "transfer: regret", "{:.2f}", None),
    ("seconds", "seconds", "{:.2f}", None),
)


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo found."""

    world: World
    epsilon: float
    coverage: float
    seed: int
    draws: int
    problem: Problem
    fits: list[Fit]
    scores: dict[str, dict[str, float]]  #: method -> metric -> value

    @property
    def visited(self) -> Any:
        """States seen in the batch ``[S]``."""
        return self.problem.expert.visited


def run_demo(
    *,
    epsilon: float,
    coverage: float,
    draws: int,
    seed: int,
    rounds: int = ROUNDS,
    on_method: Callable[[str], None] = lambda _: None,
) -> Demo:
    """Draw a gridworld batch, fit every registered method and measure it against the truth."""
    world = gridworld()
    rng = np.random.default_rng(_validate.seed_sequence(seed))
    truth = ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    batch = batch_by_coverage(world, truth, rng, coverage=coverage, per_action=PER_ACTION)
    goal_only = GOAL_REWARD * (np.arange(world.num_states) == world.num_states - 1)
    problem = Problem(
        batch,
        world.task,
        epsilon,
        ExpertActions.observed(batch),
        draws,
        seed,
        rounds=rounds,
        reward_prior=goal_only,
    )
    fits, scores = [], {}
    for name in methods():
        on_method(name)
        fit = run(name, problem)
        fits.append(fit)
        scores[name] = {
            **metrics.compare(
                fit.learned,
                truth=world.T,
                task=world.task,
                expert=problem.expert,
                epsilon=epsilon,
                transfer=world.transfer,
            ),
            "seconds": fit.seconds,
        }
    return Demo(world, epsilon, coverage, seed, draws, problem, fits, scores)


def summary(demo: Demo) -> str:
    """Say in two sentences what was done."""
    batch = demo.problem.batch
    return (
        f"The experts were seen in {int(demo.visited.sum())} of {demo.world.num_states} states of the gridworld, "
        f"{len(batch)} transitions in all, acting within epsilon = {demo.epsilon:g} of the best. "  # type: ignore[arg-type]
        "Each method learned the dynamics from them; their policies are judged under the true dynamics."
    )


def table(demo: Demo) -> list[dict[str, Any]]:
    """Return the rows of the metrics table: label, and per method the text and whether it is the best."""
    rows = []
    for metric, label, form, better in ROWS:
        values = [demo.scores[fit.name].get(metric) for fit in demo.fits]
        known = [value for value in values if value is not None]
        if not known:
            continue
        shown = [None if value is None else form.format(value) for value in values]
        top = form.format(better(known)) if better and len(known) > 1 else None
        rows.append(
            {
                "label": label,
                "cells": [{"text": text or "–", "best": text is not None and text == top} for text in shown],
            }
        )
    return rows


def panels(demo: Demo, *, transfer: bool = False) -> list[grid.PolicyPanel]:
    """Return the true policy and every learned one, judged under the truth."""
    world = demo.world
    task = world.transfer if transfer else world.task
    assert task is not None  # noqa: S101  # the gridworld has both
    best = plan(world.T, task)
    optimal, near = epsilon_ball(best, 0.0), epsilon_ball(best, demo.epsilon)
    truth = np.eye(world.num_actions)[best.policy]
    return [
        grid.panel("Truth", truth, optimal, near, count_optimal=False),
        *(grid.panel(fit.name, metrics.learned_policy(fit.learned, task), optimal, near) for fit in demo.fits),
    ]


def certificates(demo: Demo) -> list[dict[str, str]]:
    """Say for each method how many constraints it violates."""
    lines = []
    for fit in demo.fits:
        if isinstance(fit.learned, Estimate):
            text = str(fit.learned.certificate)
            if "reward" in fit.learned.info:
                distance = fit.learned.info["reward_distance"]
                text += f" That is with the reward it learned, {distance:.2g} from its prior, not with the true one."
        else:
            text = _posterior_words(fit.learned, demo)
        lines.append({"name": fit.name, "text": text})
    return lines


def _posterior_words(posterior: Posterior, demo: Demo) -> str:
    counts = posterior.violations(expert=demo.problem.expert, epsilon=demo.epsilon)
    return (
        f"{int((counts == 0).sum())} of {len(posterior)} draws satisfy every constraint; "
        f"on average {counts.mean():.1f} are violated."
    )


def draw_values(demo: Demo) -> Any:
    """Draw the normalised value of every method for both tasks."""
    plt = style.pyplot()
    names = [fit.name for fit in demo.fits]
    with plt.rc_context(style.RC):
        figure, axis = plt.subplots(figsize=(6.0, 0.42 * len(names) + 1.5))
        y = np.arange(len(names))[::-1]
        for key, marker, colour, label in (
            ("normalised_value", "o", style.BLUE, "task of the experts"),
            ("normalised_value_transfer", "D", style.VERMILLION, "transfer task"),
        ):
            axis.scatter([demo.scores[name][key] for name in names], y, marker=marker, s=45, color=colour, label=label)
        axis.axvline(0, color="#888888", linewidth=0.8)
        axis.axvline(1, color="#888888", linewidth=0.8)
        axis.set_yticks(y, names)
        axis.set_ylim(-0.6, len(names) - 0.4)
        axis.set_xlabel("normalised value (0 = random policy, 1 = optimal policy)")
        axis.set_title("Value of the learned policies under the true dynamics")
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28 - 0.12 / len(names)), ncols=2)
    return figure


def draw_bands(demo: Demo) -> Any:
    """Draw what each posterior believes about the optimal values, beside the truth."""
    posteriors = [(fit.name, fit.learned) for fit in demo.fits if isinstance(fit.learned, Posterior)]
    plt = style.pyplot()
    truth = plan(demo.world.T, demo.world.task).V
    order = np.argsort(truth)
    x = np.arange(len(order))
    with plt.rc_context(style.RC):
        figure, axis = plt.subplots(figsize=(7.0, 3.4))
        for i, (name, posterior) in enumerate(posteriors):
            low, high = posterior.credible_interval("V", mass=0.9)
            middle = np.median(posterior.values(), axis=0)
            at = x + 0.22 * (i - (len(posteriors) - 1) / 2)
            colour = style.METHOD_COLOURS.get(name, style.BLACK)
            axis.vlines(at, low[order], high[order], color=colour, linewidth=2.2, alpha=0.75)
            axis.scatter(at, middle[order], s=14, color=colour, label=f"{name}: median and 90 % interval", zorder=3)
        axis.plot(x, truth[order], color="black", linewidth=1, marker="_", markersize=9, label="truth", zorder=2)
        axis.set_xticks(x, [demo.world.task.labels.state(int(s)) for s in order], rotation=90, fontsize=7)
        for tick, s in zip(axis.get_xticklabels(), order, strict=True):
            tick.set_fontweight("bold" if demo.visited[s] else "normal")
        axis.set_xlabel("state (row, column), by true value; bold: experts seen here")
        axis.set_ylabel("optimal value V*")
        axis.set_title("What the posteriors believe about the value of each state")
        axis.legend(loc="upper left", fontsize=8)
        figure.tight_layout()
    return figure


def diagnostics(demo: Demo) -> list[dict[str, str]]:
    """Say for each posterior how well its draws represent it, and the evidence where it is known."""
    lines = []
    for fit in demo.fits:
        if isinstance(fit.learned, Posterior):
            text = str(fit.learned.diagnostics()).replace("\n", " ")
            info = fit.learned.info
            if "log_evidence_se" in info:
                text += (
                    f" Log evidence that the experts are epsilon-optimal: {info['log_evidence']:.2f} "
                    f"± {info['log_evidence_se']:.2f}."
                )
            lines.append({"name": fit.name, "text": text})
    return lines


def write(demo: Demo, out: Path, command: str) -> list[Path]:
    """Write figures, the table as CSV and the HTML report to ``out``; return what was written."""
    title = f"Policies learned from one batch (epsilon {demo.epsilon:g}, coverage {demo.coverage:g})"
    picture = grid.draw_policies(
        panels(demo), reward=demo.world.task.reward, visited=demo.visited, shape=demo.world.shape or (5, 5), title=title
    )
    written = style.save(picture, out / "policies")
    written += style.save(draw_values(demo), out / "values")
    written += style.save(draw_bands(demo), out / "bands")
    rows = table(demo)
    names = [fit.name for fit in demo.fits]
    lines = ["metric," + ",".join(names)]
    keys = sorted({key for scores in demo.scores.values() for key in scores})
    lines += [key + "," + ",".join(repr(demo.scores[name].get(key, "")) for name in names) for key in keys]
    _files.write_text(out / "metrics.csv", "\n".join(lines).replace("''", "") + "\n")
    page.write_page(
        out / "report.html",
        "demo.html",
        title="bitl demo: what near-optimal experts tell us about the world",
        summary=summary(demo),
        methods=names,
        rows=rows,
        num_states=demo.world.num_states,
        policies=page.embed(out / "policies.png"),
        values=page.embed(out / "values.png"),
        bands=page.embed(out / "bands.png"),
        certificates=certificates(demo),
        diagnostics=diagnostics(demo),
        command=command,
        version=__version__,
    )
    return [*written, out / "metrics.csv", out / "report.html"]
