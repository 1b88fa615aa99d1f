"""The transfer verdict: its rule, and that it goes with the truth where the truth is known."""

import numpy as np
import pytest

import bitl
from bitl.analysis.case import Case, Settings
from bitl.analysis.steps import posterior_summary
from bitl.analysis.transfer import CARE, RHAT, THIN, YES, Prediction, judge, transfer

TRAIN = Prediction(1.0, 0.1, 20.0, 0.05, 0.02, 0.0)


@pytest.mark.parametrize(
    ("share", "rhat", "thin", "verdict"),
    [
        (YES, 1.0, THIN, "yes"),
        (YES, 1.0, THIN + 0.01, "cannot tell"),
        (YES + 0.01, 1.0, 0.0, "with care"),
        (CARE, None, 0.0, "with care"),
        (CARE, None, 0.9, "cannot tell"),
        (CARE + 0.01, 1.0, 0.9, "no"),
        (0.0, RHAT + 0.01, 0.9, "cannot tell"),
    ],
)
def test_the_rule(share, rhat, thin, verdict):
    got, basis = judge(TRAIN, Prediction(20 * share, 0.1, 20.0, share, share, thin), rhat)
    assert got == verdict
    assert f"predicted to lose {100 * share:.3g} % of what separates the best policy from a random one" in basis
    assert "for the experts' own goal it is 5 %" in basis
    assert ("R-hat is" in basis) == (rhat is not None and rhat > RHAT)
    assert ("concludes too boldly" in basis) == (verdict == "cannot tell" and "R-hat is" not in basis)


def case_of(world, batch, epsilon):
    settings = Settings("data", "reward", world.task.discount, epsilon)
    return Case(settings, batch.counts, world.task, bitl.ExpertActions.observed(batch), {})


@pytest.fixture(scope="module")
def two_batches():
    """The gridworld's experts, seen in few states, and everything tried often."""
    world = bitl.worlds.gridworld()
    rng = np.random.default_rng(0)
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, 3.0)
    everything = bitl.ExpertActions(np.ones_like(expert.valid))
    little = bitl.worlds.batch_by_coverage(world, expert, rng, coverage=0.2, per_action=10)
    much = bitl.worlds.batch_by_coverage(world, everything, rng, coverage=1.0, per_action=40)
    return world, little, much


def test_verdicts_go_with_the_truth(two_batches):
    world, little, much = two_batches
    for batch, verdict in ((little, "no"), (much, "yes")):
        post = bitl.sample_dirichlet(batch, draws=100, seed=0, task=world.task)
        answer = transfer(case_of(world, batch, 3.0), post, world.transfer, name="new")
        assert answer.verdict == verdict
        reached = bitl.metrics.normalised_value(
            bitl.metrics.learned_policy(post, world.transfer), world.T, world.transfer
        )
        assert (reached > 0.9) == (verdict == "yes")
        assert answer.new.policy_share <= answer.new.share + 0.05
        assert answer.new.thin == pytest.approx(0.0), "everything was seen ten times or never"
        assert answer.new.share == pytest.approx(post.regret(world.transfer).value / answer.new.stake)


def test_where_the_policy_differs(two_batches):
    world, _, much = two_batches
    post = bitl.sample_dirichlet(much, draws=50, seed=0, task=world.task)
    answer = transfer(case_of(world, much, 3.0), post, world.transfer, name="new")
    before, after = (post.policy(task).argmax(axis=1) for task in (world.task, world.transfer))
    assert len(answer.differs) == int((before != after).sum()) > 0
    assert all(row["seen"] == 40 and 0 < row["probability_best"] <= 1 for row in answer.rows)
    same = transfer(case_of(world, much, 3.0), post, world.task, name="same")
    assert same.differs == []
    assert same.new == same.train


def test_draws_that_cannot_be_compared_or_disagree_about_the_new_goal(two_batches):
    """The experts' goal does not care where action 1 leads from state 0; the new one does: there the runs differ."""
    world, _, much = two_batches
    for draws in (1, 4, 7):
        post = bitl.sample_dirichlet(much, draws=draws, seed=0, task=world.task)
        answer = transfer(case_of(world, much, 3.0), post, world.transfer, name="new")
        assert answer.verdict == "cannot tell"
        assert f"too few draws ({draws})" in answer.basis
    run = np.repeat([0, 1], 50)
    T = np.zeros((100, 2, 2, 2))
    T[:, :, 0, 0] = T[:, 1, 1, 1] = 1.0
    noise = np.random.default_rng(0).uniform(0, 0.05, 100)
    T[:, 0, 1, 1] = 0.4 + 0.2 * run + noise
    T[:, 0, 1, 0] = 1 - T[:, 0, 1, 1]
    goal, other = bitl.Task(reward=[1.0, 0.0], discount=0.5), bitl.Task(reward=[0.0, 1.0], discount=0.5)
    batch = bitl.Transitions([0, 1], [0, 1], [0, 1], num_states=2, num_actions=2)
    case = Case(Settings("d", "r", 0.5, 0.1), batch.counts, goal, bitl.ExpertActions.observed(batch), {})
    answer = transfer(case, bitl.Posterior(T, "BITL", run, goal), other, name="new", sample={"rhat": 1.0})
    assert answer.verdict == "cannot tell"
    assert "the draws do not agree on the posterior" in answer.basis


def test_runs_that_stand_still_in_different_places_are_not_left_out_of_r_hat():
    run = np.repeat([0, 1], 3)
    T = np.zeros((6, 2, 1, 2))
    T[:, 0, 0, 0] = np.where(run, 0.9, 0.5)
    T[:, 0, 0, 1] = 1 - T[:, 0, 0, 0]
    T[:, 1, 0, 1] = [0.5, 0.6, 0.7, 0.5, 0.6, 0.7]
    T[:, 1, 0, 0] = 1 - T[:, 1, 0, 1]
    task = bitl.Task(reward=[[0.0], [1.0]], discount=0.0)
    batch = bitl.Transitions([0], [0], [1], num_states=2, num_actions=1)
    case = Case(Settings("d", "r", 0.0, 1.0), batch.counts, task, bitl.ExpertActions.observed(batch), {})

    class Moved(bitl.Posterior):
        def values(self, task=None):  # noqa: ARG002
            return self.T[:, :, 0, 1]

    assert posterior_summary(Moved(T, "BITL", run, task), case)["rhat"] == np.inf


def test_few_observations_count_by_how_often_the_plan_uses_them():
    """From state 0 the plan goes to state 1 for good: (1 - gamma) of its decisions are in 0."""
    T = np.broadcast_to(np.array([[0.0, 1.0], [0.0, 1.0]])[:, None], (4, 2, 1, 2))
    post = bitl.Posterior(T, "PS", np.zeros(4, dtype=int))
    task = bitl.Task(reward=[0.0, 1.0], discount=0.75, start=[1.0, 0.0])
    for visits, thin in (([3, 0], 0.25), ([0, 9], 0.75), ([10, 10], 0.0), ([1, 9], 1.0)):
        assert Prediction.of(post, task, np.array(visits)[:, None]).thin == pytest.approx(thin)


def test_an_estimate_cannot_tell(two_batches):
    world, little, _ = two_batches
    model = bitl.fit_mle(little)
    answer = transfer(case_of(world, little, 3.0), model, world.transfer, name="new")
    assert answer.verdict == "cannot tell"
    assert answer.as_dict()["regret"] is None
    with pytest.raises(bitl.DataError, match=r"The new goal must have 25 states. Got 2 instead"):
        transfer(case_of(world, little, 3.0), model, bitl.Task(reward=[0.0, 1.0], discount=0.9), name="new")


def test_nothing_at_stake_is_nothing_lost():
    T = np.full((30, 2, 1, 2), 0.5)
    post = bitl.Posterior(np.repeat(T, 2, axis=1).reshape(30, 2, 2, 2), "PS", np.arange(30) % 2)
    assert Prediction.of(post, bitl.Task(reward=[1.0, 1.0], discount=0.9), np.ones((2, 2))).share == 0.0
