"""fit_itl: certificates by an independent recount, invariances, closed forms, what it reports and what it refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitl import Counts, DataError, ExpertActions, InfeasibleError, Labels, Task, Transitions, certify, plan, worlds
from bitl.errors import UndecidedError
from bitl.estimators.itl import fit_itl
from oracles import itl as oracle

PROPERTY = settings(deadline=None, derandomize=True, max_examples=25)
GRID = worlds.gridworld()


def epsilon_of_share(world, share):
    """An epsilon at which about this share of the states has several good actions."""
    Q = plan(world.T, world.task).Q
    second = np.sort(Q.max(axis=1) - np.sort(Q, axis=1)[:, -2])
    number = round(share * len(second))
    return 0.0 if number == 0 else 0.5 * (second[number - 1] + second[number])


def batches(kind, numbers):
    """Yield (batch, task, epsilon): the paper's two worlds, coverage from 20 to 100 %."""
    for number in numbers:
        rng = np.random.default_rng([number, len(kind)])
        if kind.startswith("grid"):
            world, epsilon, K = GRID, float(kind.split()[1]), 10
        else:
            world = worlds.randomworld(rng)
            epsilon, K = epsilon_of_share(world, float(kind.split()[1])), 5
        expert = ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
        coverage = rng.choice([0.2, 0.4, 0.6, 0.8, 1.0])
        yield worlds.batch_by_coverage(world, expert, rng, coverage=coverage, per_action=K), world.task, epsilon


def recount(model, batch, task, epsilon, valid=None):
    counts = batch.counts if isinstance(batch, Transitions) else batch
    A = counts.num_actions
    valid = counts.visits > 0 if valid is None else valid
    return oracle.misses(model.T, task.rewards(A), task.discount, task.allowed(A), valid, epsilon)


# ------------------------------------------------------------------------------------------------------ certificates

KINDS = ["grid 3", "grid 0.3", "grid 0", "random 0.4", "random 0.2", "random 0"]


@pytest.mark.parametrize(("kind", "number"), [*zip(KINDS, [34, 33, 33, 34, 33, 33], strict=True)])
def test_two_hundred_datasets_are_certified(kind, number):
    for batch, task, epsilon in batches(kind, range(number)):
        model = fit_itl(batch, task=task, epsilon=epsilon)
        amounts = recount(model, batch, task, epsilon)
        assert max(amounts.values(), default=0.0) <= 1e-8
        assert len(amounts) == len(model.certificate.excess)
        assert model.certificate.violations == 0
        N = batch.counts.N
        assert model.T.min() >= 0
        np.testing.assert_allclose(model.T.sum(axis=2), 1, rtol=0, atol=1e-12)
        assert oracle.loss(model.T, N, 0.001) == pytest.approx(model.info["loss"], rel=1e-8, abs=1e-11)
        away = N.sum(axis=(1, 2)) == 0
        np.testing.assert_allclose(model.T[away], oracle.smoothed(N, 0.001)[away], rtol=0, atol=1e-15)


def small(seed, S=5, A=3, epsilon=0.3, *, masked=False):
    """A batch of an epsilon-optimal expert in a random world, so that the constraints can be met."""
    rng = np.random.default_rng(seed)
    T = rng.dirichlet(np.full(S, 0.5), size=(S, A))
    admissible = None
    if masked:
        admissible = rng.random((S, A)) < 0.7
        admissible[np.arange(S), rng.integers(A, size=S)] = True
    task = Task(reward=rng.normal(size=S), discount=0.9, admissible=admissible)
    expert = ExpertActions.epsilon_optimal(T, task, epsilon)
    world = worlds.World("random", T, task)
    return worlds.batch_by_coverage(world, expert, rng, coverage=0.8, per_action=4).counts, task, epsilon


def fit_or_skip(counts, task, epsilon, **more):
    """Separation by epsilon of all that lies outside the ball may be impossible; the feasibility tests look at that."""
    try:
        return fit_itl(counts, task=task, epsilon=epsilon, **more)
    except InfeasibleError:
        return None


# ------------------------------------------------------------------------------------------------------ invariances


@PROPERTY
@given(st.integers(0, 10_000), st.booleans())
def test_relabelling_states_and_actions_permutes_the_answer(seed, masked):
    counts, task, epsilon = small(seed, masked=masked)
    model = fit_or_skip(counts, task, epsilon, delta=0.1)
    if model is None:
        return
    rng = np.random.default_rng(seed)
    s, a = rng.permutation(5), rng.permutation(3)
    block = np.ix_(s, a, s)
    mask = None if task.admissible is None else task.admissible[np.ix_(s, a)]
    turned = Task(reward=task.rewards(3)[np.ix_(s, a)], discount=task.discount, admissible=mask)
    other = fit_itl(Counts(counts.N[block]), task=turned, epsilon=epsilon, delta=0.1)
    assert other.info["loss"] == pytest.approx(model.info["loss"], abs=1e-9)
    np.testing.assert_allclose(other.T, model.T[block], rtol=0, atol=1e-6)


@PROPERTY
@given(st.integers(0, 10_000), st.sampled_from([1e-3, 7.0, 1e4]), st.sampled_from([-50.0, 0.0, 3.0]))
def test_the_unit_and_the_zero_of_rewards_do_not_matter(seed, unit, zero):
    counts, task, epsilon = small(seed)
    model = fit_or_skip(counts, task, epsilon, delta=0.1)
    if model is None:
        return
    other = fit_itl(counts, task=task.with_reward(unit * task.reward + zero), epsilon=unit * epsilon, delta=0.1)
    np.testing.assert_allclose(other.T, model.T, rtol=0, atol=1e-6)


def test_the_same_twice():
    batch, task, epsilon = next(batches("grid 3", [7]))
    first, second = (fit_itl(batch, task=task, epsilon=epsilon) for _ in range(2))
    np.testing.assert_array_equal(first.T, second.T)
    counts = fit_itl(batch.counts, task=task, epsilon=epsilon)
    np.testing.assert_array_equal(first.T, counts.T)


def test_more_of_the_same_data_moves_the_observed_rows_towards_it():
    moved = []
    for factor in (1, 10, 100, 1000):
        distances = []
        for batch, task, epsilon in batches("random 0", range(10)):
            N = batch.counts.N
            model = fit_itl(Counts(N * factor), task=task, epsilon=epsilon, delta=0.1)
            seen = N.sum(axis=2) > 0
            distances.append(np.abs(model.T - oracle.smoothed(N * factor, 0.1))[seen].sum(axis=1).mean())
        moved.append(np.mean(distances))
    assert moved[0] > moved[1] > moved[2] > moved[3]
    assert moved[3] < 0.05 * moved[0]


@PROPERTY
@given(st.integers(0, 10_000), st.booleans())
def test_a_model_that_already_satisfies_the_constraints_is_left_alone(seed, everywhere):
    rng = np.random.default_rng(seed)
    N = rng.multinomial(20, rng.dirichlet(np.ones(5)), size=(5, 3)).astype(float)
    task = Task(reward=rng.normal(size=5), discount=0.9)
    T = oracle.smoothed(N, 0.001)
    Q = plan(T, task).Q
    valid = Q.max(axis=1, keepdims=True) == Q
    gaps = np.where(valid, np.inf, Q.max(axis=1, keepdims=True) - Q)
    visited = np.ones(5, dtype=bool) if everywhere else rng.random(5) < 0.6
    visited[0] = True
    epsilon = 0.9 * gaps[visited].min()
    expert = ExpertActions(valid & visited[:, None])
    assert certify(T, task=task, expert=expert, epsilon=epsilon).holds
    model = fit_itl(Counts(N), task=task, epsilon=epsilon, expert=expert)
    np.testing.assert_allclose(model.T, T, rtol=0, atol=1e-9)
    assert model.info["loss"] == pytest.approx(0, abs=1e-15)
    assert model.info["overruled"] == []


# ------------------------------------------------------------------------------------------------------ by hand


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.6])
def test_the_introductions_two_states_by_hand(epsilon):
    # Expert's action 0 reached the goal 10 of 10 times; action 1 was never taken. R = (0, 1), gamma = 0.9.
    # p = T(1|0,0), q = T(1|0,1), d = V1 - V0. State 1 is not visited, its rows are uniform: V1 = 1 + 0.45 (V0 + V1).
    # V0 = 0.9 (V0 + p d)  =>  V0 = 9 p d  =>  d = 1 / (0.55 + 0.9 p);  Q00 - Q01 = 0.9 (p - q) d >= epsilon.
    # Both entries of a row of two move alike: loss = 10.002 (p - p0)^2 + 0.002 (q - q0)^2, so that with d fixed the
    # missing part k of p - q is shared as 0.002 : 10.002.
    batch = Transitions([0] * 10, [0] * 10, [1] * 10, num_states=2, num_actions=2)
    model = fit_itl(batch, task=Task(reward=[0.0, 1.0], discount=0.9), epsilon=epsilon)
    p0, q0, share = 10.001 / 10.002, 0.5, 0.002 / 10.004
    asked = epsilon + model.info["margin"]
    # p = p0 + share * (asked (0.55 + 0.9 p) / 0.9 - (p0 - q0)), linear in p
    p = (p0 + share * (asked * 0.55 / 0.9 - (p0 - q0))) / (1 - share * asked)
    q = p - asked * (0.55 + 0.9 * p) / 0.9
    if q >= q0:  # nothing is missing
        p, q = p0, q0
    assert model.T[0, 0, 1] == pytest.approx(p, abs=1e-6)
    assert model.T[0, 1, 1] == pytest.approx(q, abs=1e-5)
    np.testing.assert_allclose(model.T[1], 0.5)
    assert (epsilon > 0.4) == (q < q0)


def test_the_introductions_example_has_a_largest_epsilon():
    # p <= 1 and q >= 0: epsilon <= 0.9 p / (0.55 + 0.9 p), largest at p = 1: 0.9 / 1.45.
    batch = Transitions([0] * 10, [0] * 10, [1] * 10, num_states=2, num_actions=2)
    task = Task(reward=[0.0, 1.0], discount=0.9)
    with pytest.raises(InfeasibleError) as caught:
        fit_itl(batch, task=task, epsilon=0.63)
    assert caught.value.largest_epsilon == pytest.approx(0.9 / 1.45, rel=1e-9)
    assert (caught.value.state, caught.value.action) == (0, 1)
    assert 0 < caught.value.amount <= 0.63 - 0.9 / 1.45 + 1e-9


def test_a_certain_state_decides_between_two_valid_actions():
    # gamma = 0.5; states 1 and 2 pay 1 and 0 for ever by their own data-rich loops, both of them unconstrained in
    # value by the expert (one action valid, the other much worse by reward). In state 0 both actions are valid.
    N = np.zeros((3, 2, 3))
    N[0, 0, 1], N[0, 1, 2] = 8, 8
    N[1, 0, 1] = N[2, 0, 2] = 1000
    task = Task(reward=[[0.0, 0.0], [1.0, -9.0], [0.0, -9.0]], discount=0.5)
    model = fit_itl(Counts(N), task=task, epsilon=0.5)
    Q = plan(model.T, task).Q
    # values 2 and 0: Q0 = 1 and 0, apart by 1; equal weights, so both give way alike until 0.5 apart
    assert Q[0, 0] - Q[0, 1] == pytest.approx(0.5, abs=1e-5)
    lost, gained = 1 - model.T[0, 0, 1], 1 - model.T[0, 1, 2]
    assert lost == pytest.approx(gained, abs=0.02)
    assert {row["state"] for row in model.info["overruled"]} >= {"state 0"}


# ------------------------------------------------------------------------------------------------------ who takes part


def test_actions_that_do_not_exist_take_no_part():
    counts, task, epsilon = small(3, A=3)
    wide = np.zeros((5, 4, 5))
    wide[:, :3] = counts.N
    admissible = np.ones((5, 4), dtype=bool)
    admissible[:, 3] = False
    rewards = np.column_stack([task.rewards(3), np.full(5, 1e3)])  # tempting, but not there
    more = Task(reward=rewards, discount=task.discount, admissible=admissible)
    model, other = fit_itl(counts, task=task, epsilon=epsilon), fit_itl(Counts(wide), task=more, epsilon=epsilon)
    assert other.info["loss"] == pytest.approx(model.info["loss"], rel=1e-4)
    np.testing.assert_allclose(other.T[:, 3], 0.2, atol=1e-15)
    assert len(other.certificate.excess) == len(model.certificate.excess)
    assert max(recount(other, Counts(wide), more, epsilon).values()) <= 1e-8


def test_the_experts_mask_can_be_chosen():
    # Action 1 was seen once in ten visits to state 0 and is not valid at 20 %: then its data can be overruled.
    N = np.zeros((2, 2, 2))
    N[0, 0], N[0, 1, 1], N[1, 0, 1] = [6, 3], 1, 5
    counts, task = Counts(N), Task(reward=[0.0, 1.0], discount=0.9)
    expert = ExpertActions.at_least(counts, share=0.2)
    assert expert.valid.tolist() == [[True, False], [True, False]]
    model = fit_itl(counts, task=task, epsilon=0.05, expert=expert)
    assert max(recount(model, counts, task, 0.05, expert.valid).values()) <= 1e-8
    assert model.T[0, 1, 1] < model.T[0, 0, 1]
    assert model.info["moved"][0, 1] > 0.1
    first = model.info["overruled"][0]
    assert (first["state"], first["action"], first["visits"]) in {
        ("state 0", "action 1", 1),
        ("state 0", "action 0", 9),
    }
    default = fit_itl(counts, task=task, epsilon=0.05)
    assert abs(np.diff(plan(default.T, task).Q[0])[0]) <= 0.05


def test_a_state_with_data_but_no_valid_action_keeps_its_rows():
    counts, task, epsilon = small(11)
    valid = counts.visits > 0
    state = np.flatnonzero(valid.any(axis=1))[0]
    valid[state] = False
    model = fit_itl(counts, task=task, epsilon=epsilon, expert=ExpertActions(valid))
    np.testing.assert_allclose(model.T[state], oracle.smoothed(counts.N, 0.001)[state], atol=1e-15)
    assert max(recount(model, counts, task, epsilon, valid).values()) <= 1e-8


def test_labels_are_carried():
    labels = Labels(["ward", "home"], ["wait", "treat"])
    batch = Transitions([0] * 10, [1] * 10, [1] * 9 + [0], num_states=2, num_actions=2, labels=labels)
    task = Task(reward=[0.0, 1.0], discount=0.9)
    model = fit_itl(batch, task=task, epsilon=0.5)
    assert model.labels == labels
    assert model.method == "ITL"
    for row in model.info["overruled"]:
        assert row["state"] == "ward"
        assert {row["less"], row["more"]} == {"ward", "home"}
    with pytest.raises(InfeasibleError, match=r"in ward wait, which is not valid, .* below the valid treat"):
        fit_itl(batch, task=task, epsilon=0.7)


# ------------------------------------------------------------------------------------------------------ info


@pytest.mark.parametrize("kind", ["grid 3", "random 0.4"])
def test_what_info_says_agrees_with_the_model(kind):
    for batch, task, epsilon in batches(kind, range(5)):
        model = fit_itl(batch, task=task, epsilon=epsilon)
        N, info = batch.counts.N, model.info
        base = oracle.smoothed(N, 0.001)
        np.testing.assert_allclose(info["moved"], 0.5 * np.abs(model.T - base).sum(axis=2), atol=1e-14)
        assert info["loss_on_counts"] == pytest.approx((N * (model.T - base) ** 2).sum(), rel=1e-9)
        assert info["slack"] == pytest.approx(-model.certificate.excess.max())
        assert info["slack"] >= 0
        assert info["delta"] == 0.001
        assert info["sweeps"] >= 1
        assert info["seconds"] >= 0
        keys = [*recount(model, batch, task, epsilon).items()]
        tight = {key for key, amount in keys if amount >= -2 * info["margin"] - 1e-9}
        c = model.certificate.constraints
        active = {
            (int(c.state[i]), int(c.action[i]), int(c.other[i]), "closeness" if c.closeness[i] else "separation")
            for i in info["active"]
        }
        assert active <= tight
        assert active >= {key for key, amount in keys if amount >= -2 * info["margin"] + 1e-9}
        assert active  # something gives way in every one of these
        names = [f"{row['state']} {row['action']}" for row in info["overruled"]]
        assert len(set(names)) == len(names)
        weights = []
        for row in info["overruled"]:
            s, a = model.labels.state_id(row["state"]), model.labels.action_id(row["action"])
            assert row["visits"] == N[s, a].sum() > 0
            assert row["moved"] == pytest.approx(info["moved"][s, a])
            change = model.T[s, a] - base[s, a]
            assert row["less"] == model.labels.state(int(change.argmin()))
            assert row["more"] == model.labels.state(int(change.argmax()))
            weights.append(row["visits"] * row["moved"])
        assert weights == sorted(weights, reverse=True)
        left_out = (N.sum(axis=2) * info["moved"]).ravel()
        assert min(weights) >= np.sort(left_out)[::-1][min(len(weights), left_out.size - 1)] - 1e-8


def test_a_margin_of_ones_own():
    batch, task, epsilon = next(batches("grid 3", [3]))
    model = fit_itl(batch, task=task, epsilon=epsilon, margin=0.01)
    assert model.info["margin"] == 0.01
    assert model.info["slack"] == pytest.approx(0.01, abs=1e-6)


# ------------------------------------------------------------------------------------------------------ variants


def test_the_papers_practice_satisfies_its_own_constraints():
    done = 0
    for batch, task, epsilon in batches("random 0.4", range(6)):
        expert = ExpertActions.observed(batch)
        try:
            model = fit_itl(batch, task=task, epsilon=epsilon, reference="expert")
        except UndecidedError:
            continue
        done += 1
        assert certify(model.T, task=task, expert=expert, epsilon=epsilon, reference="expert").holds
        assert model.certificate.reference == "optimal"
        assert model.certificate.violations == sum(
            amount > 1e-8 for amount in recount(model, batch, task, epsilon).values()
        )
    assert done >= 3


def test_the_references_agree_on_a_deterministic_expert():
    for batch, task, _ in batches("grid 0", range(3)):
        model = fit_itl(batch, task=task, epsilon=0.0, reference="expert")
        assert model.certificate.holds


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("reference", ["optimal", "expert"])
def test_the_monolithic_formulation(accumulate, reference):
    pytest.importorskip("cvxpy")
    counts, task, epsilon = small(1, epsilon=0.2)
    expert = ExpertActions.observed(counts)
    model = fit_itl(counts, task=task, epsilon=epsilon, reference=reference, solver="cvxpy", accumulate=accumulate)
    assert certify(model.T, task=task, expert=expert, epsilon=epsilon, reference=reference).holds
    assert oracle.loss(model.T, counts.N, 0.001) == pytest.approx(model.info["loss"], abs=1e-5)
    if reference == "optimal":
        structured = fit_itl(counts, task=task, epsilon=epsilon)
        assert structured.info["loss"] <= model.info["loss"] + 1e-6


def test_an_infeasible_linearisation_is_not_called_infeasible():
    batch = Transitions([0] * 10, [0] * 10, [1] * 10, num_states=2, num_actions=2)
    task = Task(reward=[0.0, 1.0], discount=0.9)
    with pytest.raises(UndecidedError, match=r"proves nothing .* reference='optimal'"):
        fit_itl(batch, task=task, epsilon=5.0, reference="expert")
    pytest.importorskip("cvxpy")
    with pytest.raises(UndecidedError, match=r"proves nothing"):
        fit_itl(batch, task=task, epsilon=5.0, solver="cvxpy")


# ------------------------------------------------------------------------------------------------------ refusals

BATCH = Transitions([0, 0, 1], [0, 1, 0], [1, 0, 1], num_states=2, num_actions=2)
TASK = Task(reward=[0.0, 1.0], discount=0.9)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"epsilon": 0.0}, r"state 0 has several \(action 0, action 1\)"),
        ({"epsilon": -1.0}, r"epsilon"),
        ({"epsilon": np.nan}, r"epsilon"),
        ({"delta": 0.0}, r"delta"),
        ({"delta": -1.0}, r"delta"),
        ({"margin": -1e-9}, r"margin"),
        ({"accumulate": True}, r"'accumulate' parameter needs solver='cvxpy'"),
        ({"solver": "magic"}, r"'solver' parameter must be one of 'structured', 'cvxpy'\. Got 'magic'"),
        ({"reference": "best"}, r"'reference' parameter must be one of 'optimal', 'expert'\. Got 'best'"),
        ({"task": Task(reward=[0.0, 1.0, 2.0], discount=0.9)}, r"must cover 2 states\. Got rewards for 3"),
        ({"expert": ExpertActions(np.ones((3, 2), dtype=bool))}, r"[23]"),
        ({"task": Task(reward=[0.0, 1.0], discount=0.9, admissible=[[False, True], [True, True]])}, r"not admissible"),
    ],
)
def test_refusals(more, message):
    with pytest.raises(DataError, match=message):
        fit_itl(BATCH, **{"task": TASK, "epsilon": 0.5, **more})


def test_large_problems_do_not_depend_on_the_number_of_threads(monkeypatch):
    world = worlds.randomworld(np.random.default_rng(0), num_states=260, num_actions=3)
    expert = ExpertActions.epsilon_optimal(world.T, world.task, 0.0)
    batch = worlds.batch_by_coverage(world, expert, np.random.default_rng(1), coverage=0.8, per_action=5)
    answers = []
    for workers in ("1", "3"):
        monkeypatch.setenv("BITL_WORKERS", workers)
        answers.append(fit_itl(batch, task=world.task, epsilon=0.0).T)
    np.testing.assert_array_equal(*answers)
