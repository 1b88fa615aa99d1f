import gymnasium
import numpy as np
import pytest

from bitl import DataError, ExpertActions, Labels, Task, epsilon_for_stochastic_share, plan, worlds
from bitl.worlds.batches import batch_by_coverage, batch_by_rollout

RIGHT, UP, LEFT, DOWN = range(4)


@pytest.fixture(scope="module")
def grid():
    return worlds.gridworld()


# ---------------------------------------------------------------------------------------------- gridworld


def test_golden_facts(grid):
    without_wall = worlds.gridworld(wall=())
    assert plan(without_wall.T, without_wall.task).V[0] == pytest.approx(119.37, abs=0.005)
    assert plan(grid.T, grid.task).V[0] == pytest.approx(118.8, abs=0.05)
    for epsilon, number in ((3.0, 10), (0.3, 5)):
        assert ExpertActions.epsilon_optimal(grid.T, grid.task, epsilon).stochastic.sum() == number


def test_gridworld_nouns(grid):
    assert grid.T.shape == (25, 4, 25)
    assert grid.task.start.tolist() == [1.0] + [0.0] * 24  # bottom left
    assert grid.task.discount == 0.95
    assert grid.task.labels.actions == ("right", "up", "left", "down")
    reward = np.full(25, -0.1)
    reward[24] = 10.0  # top right
    reward[[11, 12, 14]] = -5.0  # row 2; columns 1, 2, 4
    assert grid.task.reward.tolist() == reward.tolist()
    assert (grid.num_states, grid.num_actions, grid.shape) == (25, 4, (5, 5))
    np.testing.assert_allclose(grid.T.sum(axis=2), 1.0, rtol=1e-14)


@pytest.mark.parametrize(
    ("tile", "action", "expected"),
    [
        # interior: from (2, 2) right intends (2, 3) = 13, whose neighbours are 14, 18, 12, 8
        (12, RIGHT, {13: 0.8, 14: 0.05, 18: 0.05, 12: 0.05, 8: 0.05}),
        # corner, into the grid: from (0, 0) right intends 1; its neighbours are 2, 6, 0 and, off the grid, 1 itself
        (0, RIGHT, {1: 0.85, 2: 0.05, 6: 0.05, 0: 0.05}),
        # corner, into the edge: intends 0 itself; neighbours 1, 5 and twice off the grid
        (0, LEFT, {0: 0.9, 1: 0.05, 5: 0.05}),
        (0, DOWN, {0: 0.9, 1: 0.05, 5: 0.05}),
        # edge: from (2, 0) = 10 left stays at 10; neighbours 11, 15, 5 and off the grid
        (10, LEFT, {10: 0.85, 11: 0.05, 15: 0.05, 5: 0.05}),
        # edge, into the goal's corner: from (4, 3) = 23 right intends 24; neighbours 23, 19 and twice off the grid
        (23, RIGHT, {24: 0.9, 23: 0.05, 19: 0.05}),
        # the goal is not absorbing
        (24, DOWN, {19: 0.85, 18: 0.05, 24: 0.05, 14: 0.05}),
        (7, UP, {12: 0.8, 13: 0.05, 17: 0.05, 11: 0.05, 7: 0.05}),
    ],
)
def test_gridworld_dynamics_by_hand(grid, tile, action, expected):
    row = np.zeros(25)
    for following, p in expected.items():
        row[following] = p
    np.testing.assert_allclose(grid.T[tile, action], row, atol=1e-15)


def test_transfer_changes_ten_optimal_actions(grid):
    best, other = plan(grid.T, grid.task), plan(grid.T, grid.transfer)
    assert (best.policy != other.policy).sum() == 10
    # not by breaking ties the other way: the old action is worse by more than rounding where it changes
    rows = np.flatnonzero(best.policy != other.policy)
    lost = other.V[rows] - other.Q[rows, best.policy[rows]]
    assert (lost >= -1e-9).all()
    assert grid.transfer.reward[24] == 10.0
    assert (grid.transfer.reward == -5.0).sum() == 3
    assert grid.transfer.labels == grid.task.labels
    assert not np.any((grid.task.reward == -5.0) & (grid.transfer.reward == -5.0))


def test_other_gridworlds():
    small = worlds.gridworld(size=2, wall=[1], transfer_wall=[2], slip=0.0, discount=0.5)
    assert small.task.reward.tolist() == [-0.1, -5.0, -0.1, 10.0]
    assert small.T[0, UP].tolist() == [0, 0, 1, 0]
    # 0 -> 2 -> 3 and stay: -0.1 - 0.05 + 0.25 * 10 / 0.5
    assert plan(small.T, small.task).V[0] == pytest.approx(-0.15 + 5.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wall": [25]}, r"The 'wall' ids must be from 0 to 24\. Got 25 in entry 0 instead\."),
        ({"wall": [-1]}, r"The 'wall' ids must be from 0 to 24\. Got -1 in entry 0 instead\."),
        ({"wall": [1.5]}, r"The 'wall' ids must be whole numbers\. Got 1\.5 in entry 0 instead\."),
        ({"slip": 1.5}, r"The 'slip' parameter must be a number in \[0, 1\]\. Got 1\.5 instead\."),
        ({"size": 0}, r"The 'size' parameter must be a whole number of at least 1\. Got 0 instead\."),
        ({"discount": 1.0}, r"The 'discount' parameter must be a number in \[0, 1\)\. Got 1\.0 instead\."),
    ],
)
def test_bad_gridworlds(change, message):
    with pytest.raises(DataError, match=message):
        worlds.gridworld(**change)


def test_a_world_leaves_the_callers_array_alone():
    T = np.full((2, 1, 2), 0.5)
    world = worlds.World("mine", T, Task(reward=[0.0, 1.0], discount=0.5))
    T[0, 0] = [1.0, 0.0]
    assert world.T[0, 0].tolist() == [0.5, 0.5]


def test_bad_worlds():
    task = Task(reward=[0.0, 1.0], discount=0.5)
    with pytest.raises(DataError, match=r"The rows of T must be non-negative and sum to 1"):
        worlds.World("bad", np.ones((2, 1, 2)), task)
    with pytest.raises(DataError, match=r"A world has one model \[S, A, S\]\. Got shape \(1, 2, 1, 2\) instead\."):
        worlds.World("bad", np.full((1, 2, 1, 2), 0.5), task)
    with pytest.raises(DataError, match=r"The task's reward must cover 3 states\. Got rewards for 2 instead\."):
        worlds.World("bad", np.full((3, 1, 3), 1 / 3), task)


# ---------------------------------------------------------------------------------------------- randomworld


@pytest.mark.parametrize("seed", range(5))
def test_randomworld(seed):
    world = worlds.randomworld(np.random.default_rng(seed))
    assert world.T.shape == (15, 5, 15)
    assert ((world.T > 0).sum(axis=2) == 5).all()
    np.testing.assert_allclose(world.T.sum(axis=2), 1.0, rtol=1e-13)
    assert world.task.start.tolist() == [1 / 15] * 15
    s = np.arange(1, 16)
    for task, low in ((world.task, 15 - s), (world.transfer, s - 1)):
        assert ((task.reward >= low) & (task.reward <= low + 1)).all()
    V = plan(world.T, world.task).V
    assert ((V >= 0) & (V <= 300)).all()
    again = worlds.randomworld(np.random.default_rng(seed))
    np.testing.assert_array_equal(world.T, again.T)
    np.testing.assert_array_equal(world.task.reward, again.task.reward)
    assert not (world.T == worlds.randomworld(np.random.default_rng(seed + 100)).T).all()


def test_randomworld_weights_are_normalised_uniforms():
    # With two successors the larger share is max(u, v) / (u + v), whose distribution function is 2 - 1 / x on [1/2, 1].
    world = worlds.randomworld(np.random.default_rng(0), num_states=60, num_actions=60, successors=2)
    top = world.T.max(axis=2).ravel()
    for x in (0.6, 0.75, 0.9):
        p = 2 - 1 / x
        z = ((top <= x).sum() - len(top) * p) / np.sqrt(len(top) * p * (1 - p))
        assert abs(z) < 4.5
    hits = (world.T > 0).sum(axis=(0, 1))  # every state is a successor equally often
    assert np.abs((hits - 120) / np.sqrt(3600 * (1 / 30) * (29 / 30))).max() < 4.5


def test_bad_randomworlds():
    with pytest.raises(DataError, match=r"The 'rng' parameter must be a numpy\.random\.Generator\. Got int instead\."):
        worlds.randomworld(3)
    with pytest.raises(
        DataError, match=r"The 'successors' parameter must be at most the number of states 15\. Got 16\."
    ):
        worlds.randomworld(np.random.default_rng(0), successors=16)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("share", "number"), [(0.4, 6), (0.2, 3), (0.0, 0)])
def test_stochastic_states_of_randomworlds(seed, share, number):
    world = worlds.randomworld(np.random.default_rng(seed))
    epsilon = epsilon_for_stochastic_share(world.T, world.task, share)
    assert ExpertActions.epsilon_optimal(world.T, world.task, epsilon).stochastic.sum() == number


# ---------------------------------------------------------------------------------------------- batches


def z_of_transitions(batch, T):
    """z-scores of the transition counts against T, where enough are expected."""
    N = batch.counts.N
    n = N.sum(axis=2, keepdims=True)
    assert (N[(T == 0)] == 0).all()
    some = (n * T * (1 - T)) > 5
    return ((N - n * T) / np.sqrt(np.maximum(n * T * (1 - T), 1e-300)))[some]


@pytest.mark.parametrize(("coverage", "states"), [(0.4, 10), (1.0, 25), (0.01, 1)])
def test_coverage_batches(grid, coverage, states):
    expert = ExpertActions.epsilon_optimal(grid.T, grid.task, 3.0)
    batch = batch_by_coverage(grid, expert, np.random.default_rng(0), coverage=coverage, per_action=10)
    visits = batch.counts.visits
    picked = visits.sum(axis=1) > 0
    assert picked.sum() == states
    np.testing.assert_array_equal(visits[picked], 10 * expert.valid[picked])
    assert batch.labels == grid.task.labels
    np.testing.assert_array_equal(ExpertActions.observed(batch).valid, expert.valid & picked[:, None])


def test_coverage_batches_follow_the_dynamics(grid):
    expert = ExpertActions.epsilon_optimal(grid.T, grid.task, 3.0)
    batch = batch_by_coverage(grid, expert, np.random.default_rng(1), coverage=1.0, per_action=2000)
    z = z_of_transitions(batch, grid.T)
    assert len(z) > 100
    assert np.abs(z).max() < 4.5
    assert np.std(z) == pytest.approx(1.0, abs=0.25)


def test_coverage_picks_states_evenly(grid):
    expert = ExpertActions.epsilon_optimal(grid.T, grid.task, 0.0)
    rng = np.random.default_rng(2)
    seen = np.zeros(25)
    for _ in range(400):
        batch = batch_by_coverage(grid, expert, rng, coverage=0.4, per_action=1)
        seen[np.unique(batch.state)] += 1
    assert seen.sum() == 4000
    assert np.abs((seen - 160) / np.sqrt(400 * 0.4 * 0.6)).max() < 4.5


@pytest.mark.parametrize("coverage", [0.0, -0.1, 1.01, np.nan, "all"])
def test_coverage_outside_the_interval(grid, coverage):
    expert = ExpertActions.epsilon_optimal(grid.T, grid.task, 0.0)
    with pytest.raises(DataError, match=r"The 'coverage' parameter must be a number in \(0, 1\]\. Got .* instead\."):
        batch_by_coverage(grid, expert, np.random.default_rng(0), coverage=coverage, per_action=1)


def test_rollouts(grid):
    expert = ExpertActions.epsilon_optimal(grid.T, grid.task, 3.0)
    batch = batch_by_rollout(grid, expert, np.random.default_rng(3), episodes=5, steps=15)
    assert len(batch) == 75
    assert np.bincount(batch.episode).tolist() == [15] * 5
    for e in range(5):
        mine = batch.episode == e
        assert batch.state[mine][0] == 0
        np.testing.assert_array_equal(batch.state[mine][1:], batch.next_state[mine][:-1])
    assert expert.valid[batch.state, batch.action].all()


def test_rollouts_follow_dynamics_policy_and_start():
    world = worlds.randomworld(np.random.default_rng(4))
    expert = ExpertActions.epsilon_optimal(world.T, world.task, 3.0)
    batch = batch_by_rollout(world, expert, np.random.default_rng(5), episodes=6000, steps=4)
    assert np.abs(z_of_transitions(batch, world.T)).max() < 4.5
    visits = batch.counts.visits
    n, pi = visits.sum(axis=1, keepdims=True), expert.policy
    several = (pi > 0) & (pi < 1)
    z = (visits - n * pi)[several] / np.sqrt(n * pi * (1 - pi))[several]
    assert several.any()
    assert np.abs(z).max() < 4.5
    first = np.bincount(batch.state[::4], minlength=15)
    assert np.abs((first - 400) / np.sqrt(6000 * (1 / 15) * (14 / 15))).max() < 4.5


def test_batches_are_reproducible(grid):
    expert = ExpertActions.epsilon_optimal(grid.T, grid.task, 3.0)
    for make, more in (
        (batch_by_coverage, {"coverage": 0.4, "per_action": 10}),
        (batch_by_rollout, {"episodes": 5, "steps": 15}),
    ):
        one, two, three = (make(grid, expert, np.random.default_rng(s), **more).counts.N for s in (1, 1, 2))
        np.testing.assert_array_equal(one, two)
        assert (one != three).any()


def test_bad_batches(grid):
    expert = ExpertActions.epsilon_optimal(grid.T, grid.task, 0.0)
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match=r"The 'rng' parameter must be a numpy\.random\.Generator\. Got int instead\."):
        batch_by_rollout(grid, expert, 1, episodes=1, steps=1)
    for name in ("episodes", "steps"):
        with pytest.raises(DataError, match=rf"The '{name}' parameter must be a whole number of at least 1\. Got 0"):
            batch_by_rollout(grid, expert, rng, **{"episodes": 1, "steps": 1, name: 0})
    with pytest.raises(DataError, match=r"The 'per_action' parameter must be a whole number of at least 1\. Got 0"):
        batch_by_coverage(grid, expert, rng, coverage=1.0, per_action=0)
    with pytest.raises(DataError, match=r"The expert must cover \(25, 4\)\. Got \(1, 2\) instead\."):
        batch_by_coverage(grid, ExpertActions(np.ones((1, 2), dtype=bool)), rng, coverage=1.0, per_action=1)
    lost = np.zeros((25, 4), dtype=bool)
    lost[1, 0] = True
    with pytest.raises(DataError, match=r"The expert has no valid action in .*, which the episode reached"):
        batch_by_rollout(grid, ExpertActions(lost), rng, episodes=1, steps=1)


# ---------------------------------------------------------------------------------------------- Gymnasium


def make(name, **more):
    """Make the newest version of an environment; old ones are refused by newer releases of Gymnasium."""
    versions = [int(key.removeprefix(name + "-v")) for key in gymnasium.registry if key.startswith(name + "-v")]
    return gymnasium.make(f"{name}-v{max(versions)}", **more)


def values_by_table(P, gamma, sweeps=3000):
    """Value iteration on Gymnasium's own table: nothing is earned after ``terminated``."""
    V = np.zeros(len(P))
    for _ in range(sweeps):
        new = np.array(
            [
                max(sum(p * (r + gamma * V[t] * (not done)) for p, t, r, done in outcomes) for outcomes in row.values())
                for row in P.values()
            ]
        )
        if np.abs(new - V).max() < 1e-12:
            break
        V = new
    return V


def playable(P, start):
    """States in which an action can be taken: reached from the start without termination."""
    reached, front = set(), set(np.flatnonzero(start > 0).tolist())
    while front:
        reached |= front
        front = {t for s in front for row in P[s].values() for p, t, _, done in row if p > 0 and not done} - reached
    return sorted(reached)


@pytest.mark.parametrize(
    ("name", "more", "gamma"),
    [
        ("FrozenLake", {}, 0.95),
        ("FrozenLake", {"is_slippery": False, "map_name": "8x8"}, 0.9),
        ("CliffWalking", {}, 0.9),
        ("Taxi", {}, 0.9),
    ],
)
def test_gymnasium_worlds_have_the_tables_values(name, more, gamma):
    env = make(name, **more)
    P, start = env.unwrapped.P, np.asarray(env.unwrapped.initial_state_distrib, dtype=float)
    world = worlds.from_gymnasium(env, discount=gamma)
    env.close()
    states = playable(P, start)
    assert len(states) >= 10
    V, expected = plan(world.T, world.task).V, values_by_table(P, gamma)
    np.testing.assert_allclose(V[states], expected[states], atol=1e-8)
    np.testing.assert_allclose(world.task.start[: len(start)], start / start.sum())
    assert world.name.startswith(name)


def test_cliff_walking_by_hand():
    # 13 steps along the cliff, each -1, the last one ends the episode.
    env = make("CliffWalking")
    world = worlds.from_gymnasium(env, discount=0.9)
    env.close()
    assert plan(world.T, world.task).V @ world.task.start == pytest.approx(-(1 - 0.9**13) / 0.1)


class FakeEnv:
    """State 1 may be entered with or without the end of the episode; state 2 pays for ever."""

    spec = None

    def __init__(self, P, start=None):
        self.P = P
        if start is not None:
            self.initial_state_distrib = np.asarray(start)

    @property
    def unwrapped(self):
        return self


FORK = {
    0: {0: [(0.5, 1, 1.0, True), (0.5, 1, 2.0, False)], 1: [(1.0, 0, 0.25, False)]},
    1: {0: [(1.0, 1, 3.0, False)], 1: [(1.0, 0, 0.0, True)]},
}


def test_an_extra_state_where_the_end_would_swallow_a_live_state():
    world = worlds.from_gymnasium(
        FakeEnv(FORK, [1.0, 0.0]), discount=0.5, state_labels=["a", "b"], action_labels=["x", "y"]
    )
    assert world.T.shape == (3, 2, 3)
    assert world.task.labels == Labels(["a", "b", "terminal"], ["x", "y"])
    assert world.T[0].tolist() == [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]
    assert world.T[1].tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert world.T[2].tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    assert world.task.reward.tolist() == [[1.5, 0.25], [3.0, 0.0], [0.0, 0.0]]
    assert world.task.start.tolist() == [1.0, 0.0, 0.0]
    # V(b) = 3 / (1 - 1/2) = 6; V(a) = 1.5 + 0.5 * 0.5 * 6 = 3
    np.testing.assert_allclose(plan(world.T, world.task).V, [3.0, 6.0, 0.0])
    np.testing.assert_allclose(values_by_table(FORK, 0.5), [3.0, 6.0], atol=1e-9)


def test_no_extra_state_where_the_end_is_an_end():
    P = {0: {0: [(0.5, 1, 4.0, True), (0.5, 0, 0.0, False)]}, 1: {0: [(1.0, 1, 7.0, True)]}}
    world = worlds.from_gymnasium(FakeEnv(P, [2.0, 0.0]), discount=0.5)
    assert world.T.shape == (2, 1, 2)
    assert world.task.start.tolist() == [1.0, 0.0]
    # V = 2 + 0.25 V; the 7 of the table is never earned
    np.testing.assert_allclose(plan(world.T, world.task).V, [2 / 0.75, 0.0])


def test_an_end_that_leads_back_to_the_start_state():
    P = {0: {0: [(1.0, 0, 1.0, True)]}}
    world = worlds.from_gymnasium(FakeEnv(P, [1.0]), discount=0.9)
    assert plan(world.T, world.task).V.tolist() == [1.0, 0.0]


def test_without_a_start_distribution_every_state_may_be_the_start():
    world = worlds.from_gymnasium(FakeEnv(FORK), discount=0.5)
    assert world.task.start.tolist() == [0.5, 0.5, 0.0]


def test_blackjack_has_no_table():
    env = make("Blackjack")
    with pytest.raises(
        DataError, match=r"The environment Blackjack-v\d has no table P of transitions; only tabular ones"
    ):
        worlds.from_gymnasium(env, discount=0.9)
    env.close()
