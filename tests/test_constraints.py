import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitl import Constraints, DataError, ExpertActions, Labels, Task, certify, count_violations
from bitl.constraints import check_epsilon
from oracles import planning as oracle
from oracles.problems import random_model, random_task

PROPERTY = settings(deadline=None, derandomize=True, max_examples=60)
# One state, three actions, discount 0: Q = R, so everything below can be read off the rewards.
ONE = np.ones((1, 3, 1))


def recount(T, task, valid, epsilon, reference):
    """Amounts by which each inequality is missed, one at a time, from the definition in READING.md."""
    S, A = valid.shape
    R, gamma, allowed = task.rewards(A), task.discount, task.allowed(A)
    V = oracle.value_iteration(T, R, gamma, allowed)
    Q = np.where(allowed, oracle.action_values(T, R, gamma, V), -np.inf)
    best = Q.argmax(axis=1)
    if reference == "expert":
        pi = np.array([valid[s] / valid[s].sum() if valid[s].any() else np.eye(A)[best[s]] for s in range(S)])
        Q = oracle.action_values(T, R, gamma, oracle.policy_value(T, R, gamma, pi))
    misses = []
    for s in range(S):
        for a in range(A):
            for b in range(A):
                if valid[s, a] and not valid[s, b] and allowed[s, b]:
                    misses.append((s, a, b, "separation", epsilon - (Q[s, a] - Q[s, b])))
                if valid[s, a] and valid[s, b] and a < b:
                    misses.append((s, a, b, "closeness", abs(Q[s, a] - Q[s, b]) - epsilon))
    leaves = [bool(valid[s].any() and not valid[s, best[s]]) for s in range(S)]
    return misses, leaves


@st.composite
def situations(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    S, A = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    T = random_model(rng, S, A)
    task = random_task(rng, S, A, draw(st.sampled_from([0.0, 0.5, 0.9])), masked=draw(st.booleans()))
    valid = (rng.random((S, A)) < draw(st.sampled_from([0.3, 0.8]))) & task.allowed(A)
    if not valid.any():
        valid[0, np.flatnonzero(task.allowed(A)[0])[0]] = True
    return T, task, valid, draw(st.sampled_from([0.0, 0.1, 0.7]))


@PROPERTY
@given(situations(), st.sampled_from(["optimal", "expert"]))
def test_certificate_equals_a_brute_force_recount(situation, reference):
    T, task, valid, epsilon = situation
    certificate = certify(T, task=task, expert=ExpertActions(valid), epsilon=epsilon, reference=reference)
    misses, leaves = recount(T, task, valid, epsilon, reference)
    mine = {
        (int(s), int(a), int(b), "closeness" if close else "separation"): miss
        for s, a, b, close, miss in zip(
            certificate.constraints.state,
            certificate.constraints.action,
            certificate.constraints.other,
            certificate.constraints.closeness,
            certificate.excess,
            strict=True,
        )
    }
    assert len(mine) == len(certificate.constraints) == len(misses)
    for *where, miss in misses:
        assert mine[tuple(where)] == pytest.approx(miss, abs=1e-8)
    bad = [miss for *_, miss in misses if miss > 1e-8]
    assert certificate.violations == len(bad) == len(certificate.table())
    assert certificate.holds == (not bad)
    assert certificate.leaves_support.tolist() == leaves
    assert certificate.worst == pytest.approx(max((m for *_, m in misses), default=0.0), abs=1e-8)
    excesses = [row["excess"] for row in certificate.table()]
    assert excesses == sorted(excesses, reverse=True)


@PROPERTY
@given(situations(), st.sampled_from(["optimal", "expert"]))
def test_count_violations_of_a_stack(situation, reference):
    T, task, valid, epsilon = situation
    rng = np.random.default_rng(0)
    stack = np.stack([T, *(random_model(rng, *valid.shape) for _ in range(3))])
    expected = [sum(miss > 1e-8 for *_, miss in recount(model, task, valid, epsilon, reference)[0]) for model in stack]
    counted = count_violations(stack, task=task, expert=ExpertActions(valid), epsilon=epsilon, reference=reference)
    assert counted.tolist() == expected


@PROPERTY
@given(situations())
def test_references_agree_on_a_deterministic_expert(situation):
    # If separation holds at every visited state under the expert's policy, that policy is optimal, and conversely.
    T, task, valid, epsilon = situation
    single = valid & (np.cumsum(valid, axis=1) == 1)
    expert = ExpertActions(single)
    holds = [certify(T, task=task, expert=expert, epsilon=epsilon, reference=r).holds for r in ("optimal", "expert")]
    assert holds[0] == holds[1]


def one_state(reward, valid, epsilon, labels=None, **more):
    task = Task(reward=[reward], discount=0.0, labels=labels or Labels(), **more)
    return certify(ONE, task=task, expert=ExpertActions(np.array([valid])), epsilon=epsilon)


def test_a_violation_says_where_and_by_how_much():
    # Valid 0 and 1, invalid 2. Q = 5, 4, 4.2: separation of 1 from 2 misses 0.5 + 0.2, of 0 from 2 holds (0.8 >= 0.5);
    # closeness of 0 and 1: |1| <= 0.5 misses by 0.5.
    labels = Labels(["ward"], ["rest", "drug", "scan"])
    certificate = one_state([5.0, 4.0, 4.2], [True, True, False], 0.5, labels)
    assert certificate.violations == 2
    sentence = str(certificate)
    assert sentence.startswith("2 of 3 constraints are violated under optimal values (epsilon 0.5); the worst in ward,")
    assert re.search(r"drug .* epsilon .*scan .*0\.7\.$", sentence)
    first, second = certificate.table()
    assert (first["state"], first["kind"], first["action"], first["other"]) == ("ward", "separation", "drug", "scan")
    assert first["excess"] == pytest.approx(0.7)
    assert (second["kind"], second["action"], second["other"]) == ("closeness", "rest", "drug")
    assert second["excess"] == pytest.approx(0.5)
    assert not certificate.holds


def test_the_message_of_a_missed_closeness_and_of_success():
    sentence = str(one_state([5.0, 2.0, -9.0], [True, True, False], 1.0))
    assert re.search(r"action 0 \w+ be within epsilon of action 1 and misses .*by 2\.$", sentence)
    good = one_state([5.0, 4.5, 0.0], [True, True, False], 1.0)
    assert str(good) == "All 3 constraints hold under optimal values (epsilon 1)."
    assert good.worst == pytest.approx(-0.5)  # closeness has 0.5 to spare


def test_labels_of_the_expert_reach_the_certificate():
    expert = ExpertActions(np.array([[True, False, False]]), Labels(["ICU"], ["a", "b", "c"]))
    certificate = certify(ONE, task=Task(reward=[0.0], discount=0.0), expert=expert, epsilon=1.0)
    assert re.search(r"in ICU, where a .* b and misses .*by 1\.$", str(certificate))
    assert certificate.table()[0]["other"] == "b"


def test_the_number_of_constraints_by_hand():
    # 5 actions, 3 valid: 3 * 2 separations, 3 unordered pairs; with one of the invalid ones not admissible, 3 * 1.
    valid = np.array([[True, False, True, True, False], [False] * 5])
    constraints = Constraints.of(ExpertActions(valid), Task(reward=np.zeros((2, 5)), discount=0.5))
    assert (constraints.closeness.sum(), (~constraints.closeness).sum()) == (3, 6)
    assert set(constraints.state.tolist()) == {0}
    pairs = {
        frozenset((int(a), int(b)))
        for a, b in zip(
            constraints.action[constraints.closeness], constraints.other[constraints.closeness], strict=True
        )
    }
    assert pairs == {frozenset((0, 2)), frozenset((0, 3)), frozenset((2, 3))}
    admissible = np.ones((2, 5), dtype=bool)
    admissible[0, 4] = False
    fewer = Constraints.of(ExpertActions(valid), Task(reward=np.zeros((2, 5)), discount=0.5, admissible=admissible))
    assert len(fewer) == 6


def test_a_policy_that_leaves_the_support():
    # The valid action is the worst one; the unvisited state does not count.
    T = np.tile(np.eye(2)[:, None, :], (1, 2, 1))
    expert = ExpertActions(np.array([[True, False], [False, False]]))
    certificate = certify(T, task=Task(reward=[[0.0, 1.0], [0.0, 1.0]], discount=0.0), expert=expert, epsilon=0.0)
    assert certificate.leaves_support.tolist() == [True, False]
    assert certificate.violations == 1


def test_exact_boundaries_hold():
    # Separation and closeness are both non-strict.
    assert one_state([2.0, 1.0, 0.0], [True, True, False], 1.0).violations == 0
    assert one_state([2.0, 1.0, 1e-6], [True, True, False], 1.0).violations == 1
    assert one_state([2.0 + 1e-6, 1.0, 0.0], [True, True, False], 1.0).violations == 1


def test_epsilon_zero_with_several_valid_actions_is_refused():
    expert = ExpertActions(
        np.array([[True, False, False], [True, False, True], [True, True, False]]),
        Labels(["A", "B", "C"], ["rest", "drug", "scan"]),
    )
    message = r"At epsilon = 0 .* equal in value, but B has several \(rest, scan\) and is one of 2 such states"
    with pytest.raises(DataError, match=message):
        check_epsilon(expert, 0.0)
    assert check_epsilon(expert, 0.25) == 0.25
    assert check_epsilon(ExpertActions(np.array([[True, False]])), 0) == 0.0


@pytest.mark.parametrize("epsilon", [-0.1, np.nan, np.inf, "1", None])
def test_bad_epsilon(epsilon):
    expert = ExpertActions(np.array([[True, False, False]]))
    for call in (
        lambda: check_epsilon(expert, epsilon),
        lambda: certify(ONE, task=Task(reward=[0.0], discount=0.0), expert=expert, epsilon=epsilon),
        lambda: count_violations(ONE, task=Task(reward=[0.0], discount=0.0), expert=expert, epsilon=epsilon),
    ):
        with pytest.raises(DataError, match=r"The 'epsilon' parameter must be a number in \[0, inf\)\. Got "):
            call()


def test_other_bad_input():
    task, expert = Task(reward=[0.0], discount=0.0), ExpertActions(np.array([[True, False, False]]))
    with pytest.raises(DataError, match=r"The 'reference' parameter must be one of 'optimal', 'expert'\. Got 'best'"):
        certify(ONE, task=task, expert=expert, epsilon=1.0, reference="best")
    with pytest.raises(DataError, match="for a stack use count_violations"):
        certify(ONE[None], task=task, expert=expert, epsilon=1.0)
    with pytest.raises(DataError, match=r"The task's reward must cover 1 states\. Got rewards for 2 instead\."):
        certify(ONE, task=Task(reward=[0.0, 0.0], discount=0.0), expert=expert, epsilon=1.0)
    banned = Task(reward=[0.0], discount=0.0, admissible=np.array([[False, True, True]]))
    with pytest.raises(
        DataError, match=r"The expert takes action 0 in state 0, which the task marks as not admissible"
    ):
        certify(ONE, task=banned, expert=expert, epsilon=1.0)
    with pytest.raises(DataError, match=r"The rows of T must be non-negative and sum to 1"):
        certify(2 * ONE, task=task, expert=expert, epsilon=1.0)
