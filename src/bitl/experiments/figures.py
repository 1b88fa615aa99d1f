"""The study's figures, from the rows of the results store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from ..expert import ExpertActions, epsilon_ball
from ..methods import Problem, run
from ..planning import plan
from ..report import curves, grid, next_states, style
from ..worlds import gridworld
from . import epsilon, feasible_region
from .store import Row
from .synthetic import GRID_EPSILON, batch_of, world_of
from .tables import METHODS
from .unit import LEVELS, METHOD, ROLLOUT, How, Unit

ENVIRONMENTS = {"gridworld": "Gridworld", "randomworld": "Randomworlds"}
SUFFIXES = ("", "_transfer")
COUNTERFACTUAL = ("MLE", "ITL", "MCE", "PS", "BITL")

Values = Mapping[tuple[str, str, str, str], Mapping[tuple[str, int, float], float]]


def coverage_values(rows: Iterable[Row]) -> Values:
    """Return the coverage batches' results by (level, environment, method, metric), then by batch."""
    found: dict[tuple[str, str, str, str], dict[tuple[str, int, float], float]] = defaultdict(dict)
    for _, level, world, dataset, coverage, method, metric, value in rows:
        if coverage != ROLLOUT:
            found[level, world.split("-")[0], method, metric][world, dataset, coverage] = value
    return found


def regret_cloud(found: Values, level: str, environment: str, suffix: str) -> curves.Cloud:
    """Return BITL's Bayesian regret and normalised value, one point per coverage batch."""
    regret = found.get((level, environment, "BITL", "bayesian_regret" + suffix), {})
    value = found.get((level, environment, "BITL", "normalised_value" + suffix), {})
    keys = sorted(regret)
    return np.array([regret[key] for key in keys]), np.array([value[key] for key in keys])


def study_figures(rows: Iterable[Row], out: Path) -> list[Path]:
    """Draw value against coverage and regret, one figure per level."""
    found = coverage_values(rows)
    written: list[Path] = []
    for level in LEVELS:
        present = [name for name in ENVIRONMENTS if any(key[:2] == (level, name) for key in found)]
        if not present:
            continue
        lines = [[_by_coverage(found, level, name, suffix) for suffix in SUFFIXES] for name in present]
        clouds = [[regret_cloud(found, level, name, suffix) for suffix in SUFFIXES] for name in present]
        title = f"What coverage is worth, and what regret foretells ({level} % stochastic-policy states)"
        figure = curves.draw_study(title, lines, clouds, [ENVIRONMENTS[name] for name in present])
        written += style.save(figure, out / "figures" / f"coverage-stochastic{level}")
    return written


def _by_coverage(found: Values, level: str, environment: str, suffix: str) -> dict[str, dict[float, list[float]]]:
    names = {key[2] for key in found if key[:2] == (level, environment)}
    ordered = [name for name in METHODS if name in names] + sorted(names - set(METHODS))
    values: dict[str, dict[float, list[float]]] = {}
    for name in ordered:
        by_coverage: dict[float, list[float]] = defaultdict(list)
        for (_, _, coverage), value in sorted(found[level, environment, name, "normalised_value" + suffix].items()):
            by_coverage[coverage].append(value)
        values[name] = dict(by_coverage)
    most = max((len(found) for by_coverage in values.values() for found in by_coverage.values()), default=0)
    # a point of a few batches beside points of many would only mislead
    return {
        name: {c: found for c, found in by_coverage.items() if 4 * len(found) >= most}
        for name, by_coverage in values.items()
    }


def gridworld_figure(out: Path, epsilon: float = 3.0) -> list[Path]:
    """Draw the gridworld's rewards and optimal policies, standard and transfer."""
    world = gridworld()
    panels = []
    for name, task in (("standard task", world.task), ("transfer task", world.transfer or world.task)):
        best = plan(world.T, task)
        optimal, near = epsilon_ball(best, 0.0), epsilon_ball(best, epsilon)
        panels.append(grid.RewardPanel(name, task.reward, optimal, near))
    title = f"Gridworld: reward per step, optimal actions and those within epsilon = {epsilon:g}"
    start = int(np.argmax(world.task.start))
    figure = grid.draw_tasks(panels, shape=world.shape or (5, 5), start=start, title=title)
    return style.save(figure, out / "figures" / "gridworld-tasks")


def epsilon_figure(rows: Iterable[Row], out: Path) -> list[Path]:
    """Draw held-out matching against epsilon."""
    found = epsilon.by_metric(rows)
    scores = {
        words: np.array([found[f"{name}@{e:g}"] for e in epsilon.EPSILONS]) for words, name in epsilon.SCORES.items()
    }
    number = len(found[epsilon.RECOMMENDED])
    title = f"Held-out matching of ITL in the gridworld: {number} batches,\n5 episodes each, one held out at a time"
    drawn = curves.draw_tuning(title, np.array(epsilon.EPSILONS), scores, GRID_EPSILON[epsilon.LEVEL])
    return style.save(drawn, out / "figures" / "epsilon-tuning")


def feasible_region_figure(out: Path, points: int = 101) -> list[Path]:
    """Draw three slices of the feasible set, with witnesses that it is not convex; each witness is certified first."""
    pieces = [
        (f"$t_{{102}}$ = {p.t102:.2f}", p.axis, p.feasible, p.witness if feasible_region.verify(p) else None)
        for p in feasible_region.slices(points)
    ]
    labels = (
        "$t_{002}$: probability of state 2\nafter action 0 in state 0",
        "$t_{201}$: of state 1\nafter action 0 in state 2",
    )
    title = f"The feasible models are not a convex set (three states, epsilon = {feasible_region.EPSILON:g})"
    return style.save(curves.draw_slices(title, pieces, labels), out / "figures" / "feasible-region")


def counterfactual_figure(out: Path, how: How) -> list[Path]:
    """Draw where an action that the experts never took leads, according to every method, on one gridworld batch."""
    unit = Unit("counterfactual", "40", "gridworld", 0, 0.6, "ITL", how)
    world, tolerance = world_of(unit)
    batch = batch_of(unit, world, tolerance)
    expert = ExpertActions.observed(batch)
    problem = Problem(batch, world.task, tolerance, expert, how.draws, unit.seeds(METHOD), rounds=how.rounds)
    learned = {name: run(name, problem).learned for name in COUNTERFACTUAL}
    # of the actions never taken in visited states, the one about which the experts' competence tells ITL most
    told = np.abs(learned["ITL"].T - 1 / world.num_states).sum(axis=2) * (expert.visited[:, None] & ~expert.valid)
    s, a = divmod(int(told.argmax()), world.num_actions)
    answer = next_states.next_states(learned, state=s, action=a, top=5)
    true = world.T[s, a]
    likely = ", ".join(f"{world.task.labels.state(int(i))} ({true[i]:.2f})" for i in np.argsort(-true)[:3])
    figure = next_states.draw_next_states(answer, note=f"never taken there; in truth it leads to {likely}, ...")
    return style.save(figure, out / "figures" / "counterfactual-gridworld")
