import numpy as np
import pytest

from bitl import (
    Counts,
    DataError,
    Estimate,
    ExpertActions,
    Labels,
    Posterior,
    Task,
    count_violations,
    plan,
    sample_dirichlet,
)
from bitl.posterior.diagnostics import between_runs, by_run
from oracles.problems import random_model, random_task

TRUTH = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
SWAPPED = TRUTH[:, ::-1]
TASK = Task(reward=[0.0, 1.0], discount=0.5)


def posterior(n=3, seed=0, S=3, A=2, run=None, **more):
    rng = np.random.default_rng(seed)
    T = np.stack([random_model(rng, S, A) for _ in range(n)])
    return Posterior(T, "test", np.zeros(n, dtype=int) if run is None else run, **more), random_task(rng, S, A, 0.9)


def test_policy_is_the_share_of_draws():
    # The best policy is (1, 0) in the first model and (0, 1) in the second.
    draws = Posterior(np.stack([TRUTH, SWAPPED, TRUTH, TRUTH]), "test", [0, 0, 1, 1], TASK)
    assert draws.policy().tolist() == [[0.25, 0.75], [0.75, 0.25]]
    assert draws.policy(Task(reward=[1.0, 0.0], discount=0.5)).tolist() == [[0.75, 0.25], [0.25, 0.75]]
    assert len(draws) == 4


def test_values_are_those_of_each_draw():
    draws, task = posterior(5)
    for i in range(5):
        np.testing.assert_allclose(draws.values(task)[i], plan(draws.T[i], task).V, rtol=1e-10)
    np.testing.assert_allclose(Posterior(TRUTH[None], "x", [0], TASK).values(), [[1.0, 2.0]])


def test_every_task_has_its_own_plan():
    draws, task = posterior(3)
    other = task.with_reward(-np.asarray(task.reward))
    first, second = draws.values(task).copy(), draws.values(other).copy()
    assert (first != second).all()
    np.testing.assert_array_equal(draws.values(task), first)
    # tasks that come and go must not be confused with one another
    for gamma in np.linspace(0.1, 0.9, 20):
        np.testing.assert_allclose(
            draws.values(Task(reward=task.reward, discount=gamma)),
            plan(draws.T, Task(reward=task.reward, discount=gamma)).V,
        )


def test_violations_of_each_draw():
    expert = ExpertActions(np.array([[False, True], [True, False]]))
    draws = Posterior(np.stack([TRUTH, SWAPPED, TRUTH]), "test", [0, 0, 0], TASK)
    assert draws.violations(expert=expert, epsilon=0.1).tolist() == [0, 2, 0]
    for reference in ("optimal", "expert"):
        np.testing.assert_array_equal(
            draws.violations(expert=expert, epsilon=0.7, reference=reference),
            count_violations(draws.T, task=TASK, expert=expert, epsilon=0.7, reference=reference),
        )


# ---------------------------------------------------------------------------------------------- diagnostics


def test_diagnostics_by_hand():
    # Runs (0, 2) and (4, 6): means 1 and 5, within variances 2 and 2, variance of the means 8.
    # R-hat = sqrt((1/2 * 2 + 8) / 2) = sqrt(4.5); ESS = 2 * 9 / 8.
    rhat, ess = between_runs(np.array([0.0, 2.0, 4.0, 6.0]), np.array([0, 0, 1, 1]))
    assert rhat == pytest.approx(np.sqrt(4.5))
    assert ess == pytest.approx(2.25)


def test_runs_may_be_interleaved_and_unequal():
    values = np.array([0.0, 4.0, 2.0, 6.0, 99.0])
    assert by_run(values, np.array([3, 7, 3, 7, 7])).tolist() == [[0, 2], [4, 6]]
    assert by_run(np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1])).shape == (2, 2, 2)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1 / 3, -1e8 / 3])
def test_a_constant_has_no_effective_draws(constant):
    run = np.repeat(np.arange(4), 25)
    draws, _ = posterior(100, run=run)
    result = draws.diagnostics(lambda T: np.full(len(T), constant))
    assert np.isnan(result["rhat"])
    assert np.isnan(result["ess"])


def test_runs_that_disagree_are_noticed():
    rng = np.random.default_rng(1)
    values, run = rng.normal(size=400), np.repeat(np.arange(2), 200)
    draws, _ = posterior(400, run=run)
    shifted = draws.diagnostics(lambda _: values + 5 * run)
    assert shifted["rhat"] > 2.5
    assert shifted["ess"] < 5
    frozen = draws.diagnostics(lambda _: 5.0 * run)
    assert frozen["rhat"] == np.inf
    assert np.isnan(frozen["ess"])


def test_independent_draws_look_independent():
    task = Task(reward=[0.0, 1.0], discount=0.5)
    result = sample_dirichlet(Counts(np.ones((2, 2, 2))), draws=4000, seed=0, delta=1.0, task=task).diagnostics()
    assert result["rhat"].shape == result["ess"].shape == (2,)
    assert (np.abs(result["rhat"] - 1) < 0.01).all()
    assert (result["ess"] > 500).all()


def test_one_run_cannot_be_judged():
    draws, task = posterior(10)
    result = draws.diagnostics(task=task)
    assert np.isnan(result["rhat"]).all()
    assert np.isnan(result["ess"]).all()


# ---------------------------------------------------------------------------------------------- ArviZ


@pytest.mark.filterwarnings("ignore::FutureWarning:arviz")  # its daily notice, on import
def test_to_arviz():
    labels = Labels(["low", "mid", "high"], ["wait", "treat"])
    rng = np.random.default_rng(2)
    task = random_task(rng, 3, 2, 0.9)
    run = np.repeat(np.arange(2), 5)
    draws, _ = posterior(10, run=run, labels=labels, task=task)
    data = draws.to_arviz().posterior
    assert data["T"].dims == ("chain", "draw", "state", "action", "next_state")
    assert data["T"].shape == (2, 5, 3, 2, 3)
    assert data["V"].shape == (2, 5, 3)
    assert data["state"].values.tolist() == data["next_state"].values.tolist() == ["low", "mid", "high"]
    assert data["action"].values.tolist() == ["wait", "treat"]
    np.testing.assert_array_equal(data["T"].values.reshape(10, 3, 2, 3), draws.T)
    np.testing.assert_array_equal(data["V"].values.reshape(10, 3), draws.values())
    picked = data["T"].sel(state="mid", action="treat", next_state="high").values.ravel()
    np.testing.assert_array_equal(picked, draws.T[:, 1, 1, 2])


@pytest.mark.filterwarnings("ignore")  # ArviZ's and matplotlib's own
def test_arviz_summarises_and_draws_them():
    import arviz
    import matplotlib

    matplotlib.use("Agg")
    draws, task = posterior(40, run=np.repeat(np.arange(4), 10))
    data = Posterior(draws.T, "test", draws.run, task).to_arviz()
    table = arviz.summary(data, var_names=["V"])
    np.testing.assert_allclose(table["mean"], draws.values(task).mean(axis=0), atol=0.001)
    assert (table["r_hat"] < 1.5).all()
    for draw in (arviz.plot_trace, arviz.plot_forest):
        assert draw(data, var_names=["V"]) is not None
    matplotlib.pyplot.close("all")


@pytest.mark.filterwarnings("ignore::FutureWarning:arviz")  # its daily notice, on import
def test_to_arviz_without_a_task():
    draws, _ = posterior(6, run=np.repeat([0, 1], 3))
    data = draws.to_arviz().posterior
    assert "V" not in data
    assert data["state"].values.tolist() == ["state 0", "state 1", "state 2"]


# ---------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("T", "run", "message"),
    [
        (TRUTH, [0, 0], r"A posterior needs draws \[draw, S, A, S\]\. Got shape \(2, 2, 2\) instead\."),
        (TRUTH[None], [0, 1], r"Each draw needs a run\. Got 2 runs for 1 draws\."),
        (TRUTH[None], [-1], r"The 'run' ids must be 0 or more\. Got -1 in draw 0 instead\."),
        (TRUTH[None], [0.5], r"The 'run' ids must be whole numbers\. Got 0\.5 in draw 0 instead\."),
        (
            TRUTH[None, :, :, :1],
            [0],
            r"The model T must have shape \[S, A, S\] or \[draw, S, A, S\]\. Got shape \(1, 2, 2",
        ),
    ],
)
def test_bad_posteriors(T, run, message):
    with pytest.raises(DataError, match=message):
        Posterior(T, "test", run)


def test_questions_that_need_a_task():
    draws, _ = posterior(3)
    for ask in (draws.plan, draws.policy, draws.values, draws.regret, draws.diagnostics):
        with pytest.raises(
            DataError, match=r"This posterior was drawn without a task; pass task=\.\.\. to ask about one"
        ):
            ask()


def test_rows_that_do_not_sum_to_one_are_refused_at_the_latest_when_planning():
    with pytest.raises(
        DataError, match=r"The rows of T must be non-negative and sum to 1\. .* at state 0, action 0, draw 1"
    ):
        Posterior(np.stack([TRUTH, np.full((2, 2, 2), 0.7)]), "test", [0, 0], TASK).values()


def test_estimates():
    with pytest.raises(DataError, match=r"An estimate is one model \[S, A, S\]\. Got shape \(1, 2, 2, 2\) instead\."):
        Estimate(TRUTH[None], "test")
    with pytest.raises(DataError, match=r"sum to 1\. Got minimum 0\.7 and sum 1\.4 at state 0, action 0 instead\."):
        Estimate(np.full((2, 2, 2), 0.7), "test")
    with pytest.raises(DataError, match=r"There must be one label per action\. Got 3 labels for 2 actions\."):
        Estimate(TRUTH, "test", labels=Labels(None, ["x", "y", "z"]))
    with pytest.raises(TypeError, match="does not support item assignment"):
        Estimate(TRUTH, "test", info={"a": 1}).info["a"] = 2
