"""Batches from a simulated expert: the two procedures the paper describes."""

from __future__ import annotations

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..errors import DataError
from ..expert import ExpertActions
from ..transitions import Transitions
from .world import World


def batch_by_coverage(
    world: World, expert: ExpertActions, rng: np.random.Generator, *, coverage: float, per_action: int
) -> Transitions:
    """Pick a share of the states, then sample a number of transitions for each of the expert's actions there.

    Parameters
    ----------
    world, expert
        The true dynamics and the valid actions.
    rng
        The source of randomness.
    coverage
        Share of the states to visit, in (0, 1]; at least one state is picked.
    per_action
        Transitions K for every valid action of a picked state.

    Examples
    --------
    >>> from bitl import worlds
    >>> world = worlds.gridworld()
    >>> expert = ExpertActions.epsilon_optimal(world.T, world.task, 0.0)
    >>> len(batch_by_coverage(world, expert, np.random.default_rng(0), coverage=0.4, per_action=10))
    100
    """
    rng = _validate.generator(rng)
    coverage = _validate.real(coverage, "coverage", low=0, high=1, ends="(]")
    K = _validate.positive_int(per_action, "per_action")
    _check(world, expert)
    able = np.flatnonzero(expert.visited)
    number = min(len(able), max(1, round(coverage * world.num_states)))
    picked = np.sort(rng.choice(able, size=number, replace=False))
    s, a = np.nonzero(expert.valid[picked])
    state, action = np.repeat(picked[s], K), np.repeat(a, K)
    return _batch(world, state, action, _draw_rows(world.T[state, action], rng))


def batch_by_rollout(
    world: World, expert: ExpertActions, rng: np.random.Generator, *, episodes: int, steps: int
) -> Transitions:
    """Let the expert act from the start distribution, choosing uniformly among its valid actions."""
    rng = _validate.generator(rng)
    episodes = _validate.positive_int(episodes, "episodes")
    steps = _validate.positive_int(steps, "steps")
    _check(world, expert)
    policy = expert.policy
    s = _draw_rows(np.broadcast_to(world.task.start, (episodes, world.num_states)), rng)
    columns = []
    for _ in range(steps):
        lost = s[~expert.visited[s]]
        if lost.size:
            raise DataError(
                f"The expert has no valid action in {expert.labels.state(lost[0])}, which the episode reached; "
                "give it one in every state."
            )
        a = _draw_rows(policy[s], rng)
        after = _draw_rows(world.T[s, a], rng)
        columns.append((s, a, after))
        s = after
    state, action, following = (np.stack(c, axis=1).ravel() for c in zip(*columns, strict=True))
    return _batch(world, state, action, following, np.repeat(np.arange(episodes), steps))


def _batch(
    world: World,
    state: np.ndarray,
    action: np.ndarray,
    following: np.ndarray,
    episode: np.ndarray | None = None,
) -> Transitions:
    return Transitions(
        state,
        action,
        following,
        num_states=world.num_states,
        num_actions=world.num_actions,
        episode=episode,
        labels=world.task.labels,
    )


def _draw_rows(rows: FloatArray, rng: np.random.Generator) -> np.ndarray:
    """Draw one index from each row of probabilities, by inversion."""
    edges = np.cumsum(rows, axis=1)
    u = rng.random(len(rows)) * edges[:, -1]
    return np.asarray((edges <= u[:, None]).sum(axis=1))


def _check(world: World, expert: ExpertActions) -> None:
    if expert.valid.shape != world.T.shape[:2]:
        raise DataError(f"The expert must cover {world.T.shape[:2]}. Got {expert.valid.shape} instead.")
