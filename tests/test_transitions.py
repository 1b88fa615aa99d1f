import numpy as np
import pandas as pd
import pytest

from bitl import Counts, DataError, Labels, Task, Transitions, fit_mle, sample_dirichlet
from bitl.transitions import as_counts, match

EMPTY = r"The batch is empty: there is no transition to learn from\."


def batch(state=(0, 1), action=(0, 1), next_state=(1, 0), **more):
    return Transitions(state, action, next_state, **{"num_states": 2, "num_actions": 2, **more})


def table(**changed):
    columns = {"s": ["well", "ill", "ill"], "a": ["wait", "treat", "wait"], "t": ["ill", "well", "ill"]}
    return pd.DataFrame({**columns, **changed})


def read(data, **more):
    return Transitions.from_dataframe(data, state="s", action="a", next_state="t", **more)


# ---------------------------------------------------------------------------------------------- counting


def test_counts_equal_a_loop():
    rng = np.random.default_rng(0)
    s, a, t = rng.integers(4, size=200), rng.integers(3, size=200), rng.integers(4, size=200)
    N = np.zeros((4, 3, 4))
    for i in range(200):
        N[s[i], a[i], t[i]] += 1
    made = Transitions(s, a, t, num_states=4, num_actions=3)
    np.testing.assert_array_equal(made.counts.N, N)
    np.testing.assert_array_equal(made.counts.visits, N.sum(axis=2))
    assert len(made) == 200
    assert as_counts(made) is made.counts
    assert as_counts(made.counts) is made.counts


def test_whole_floats_and_small_integer_types_are_ids():
    assert batch(state=[0.0, 1.0]).counts.N[0, 0, 1] == 1
    big = Transitions(
        np.full(3, 250, np.uint8), np.zeros(3, np.uint8), np.full(3, 250, np.uint8), num_states=251, num_actions=1
    )
    assert big.counts.N[250, 0, 250] == 3  # the flat index must not overflow 8 bits


def test_a_batch_does_not_change_with_its_source():
    state = np.array([0, 1])
    made = batch(state=state)
    state[0] = 1
    assert made.state.tolist() == [0, 1]


# ---------------------------------------------------------------------------------------------- bad ids


@pytest.mark.parametrize("column", ["state", "action", "next_state"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, -1], r"ids must be from 0 to 1\. Got -1 in row 1 instead\."),
        ([2, 0], r"ids must be from 0 to 1\. Got 2 in row 0 instead\."),
        ([0, 1234567], r"ids must be from 0 to 1\. Got 1234567 in row 1 instead\."),
        ([0, 0.5], r"ids must be whole numbers\. Got 0\.5 in row 1 instead\."),
        ([0, np.nan], r"ids must be whole numbers\. Got nan in row 1 instead\."),
        ([np.inf, 0], r"ids must be whole numbers\. Got inf in row 0 instead\."),
        ([[0], [1]], r"ids must be one-dimensional\. Got an array of shape \(2, 1\) instead\."),
        (["a", "b"], r"ids must be integers\. Got values of type <U1 instead; for labels, use Transitions\.from_dataf"),
        ([True, False], r"ids must be integers\. Got values of type bool instead"),
    ],
)
def test_bad_ids(column, values, message):
    with pytest.raises(DataError, match=rf"The '{column}' {message}"):
        batch(**{column: values})


def test_bad_episodes():
    with pytest.raises(DataError, match=r"The 'episode' ids must be 0 or more\. Got -3 in row 1 instead\."):
        batch(episode=[0, -3])
    with pytest.raises(DataError, match=r"must have the same length\. Got .*'episode': 3"):
        batch(episode=[0, 0, 1])


@pytest.mark.parametrize("name", ["num_states", "num_actions"])
@pytest.mark.parametrize("value", [0, -1, 2.0, "2", True, None])
def test_bad_sizes(name, value):
    with pytest.raises(DataError, match=rf"The '{name}' parameter must be a whole number of at least 1\. Got "):
        batch(**{name: value})


def test_empty_and_uneven_batches():
    with pytest.raises(DataError, match=EMPTY):
        batch([], [], [])
    with pytest.raises(DataError, match=EMPTY):
        Counts(np.zeros((2, 1, 2)))
    with pytest.raises(DataError, match=EMPTY):
        Transitions.from_episodes([], num_states=2, num_actions=2)
    with pytest.raises(
        DataError, match=r"must have the same length\. Got \{'state': 2, 'action': 1, 'next_state': 2\}"
    ):
        batch(action=[0])


@pytest.mark.parametrize(
    ("N", "message"),
    [
        (np.ones((2, 2)), r"The counts N must have shape \[S, A, S\]\. Got shape \(2, 2\) instead\."),
        (np.ones((2, 2, 3)), r"The counts N must have shape \[S, A, S\]\. Got shape \(2, 2, 3\) instead\."),
        (np.full((2, 1, 2), 0.5), r"The counts N must be whole numbers of at least 0\."),
        (np.array([[[1.0, -1.0]], [[0.0, 0.0]]]), r"The counts N must be whole numbers of at least 0\."),
        (np.array([[[1.0, np.nan]], [[0.0, 0.0]]]), r"The 'N' parameter must be finite\. Got nan at index \[0, 0, 1\]"),
    ],
)
def test_bad_counts(N, message):
    with pytest.raises(DataError, match=message):
        Counts(N)


def test_only_batches_are_batches():
    with pytest.raises(DataError, match=r"The batch must be Transitions or Counts\. Got list instead\."):
        fit_mle([1, 2, 3])


# ---------------------------------------------------------------------------------------------- episodes


def test_from_episodes():
    made = Transitions.from_episodes([([0, 1, 0], [1, 0]), ([1, 1], [1])], num_states=2, num_actions=2)
    columns = (made.state, made.action, made.next_state, made.episode)
    assert [c.tolist() for c in columns] == [[0, 1, 1], [1, 0, 1], [1, 0, 1], [0, 0, 1]]
    with pytest.raises(
        DataError, match=r"Episode 1 must have one more state than actions\. Got 2 states and 2 actions"
    ):
        Transitions.from_episodes([([0, 1], [0]), ([0, 1], [0, 0])], num_states=2, num_actions=2)


# ---------------------------------------------------------------------------------------------- tables


def test_text_labels_are_sorted():
    made = read(table())
    assert made.labels == Labels(["ill", "well"], ["treat", "wait"])
    columns = (made.state, made.action, made.next_state)
    assert [c.tolist() for c in columns] == [[1, 0, 0], [1, 0, 1], [0, 1, 0]]


def test_given_labels_fix_the_order_and_may_be_more():
    made = read(table(), state_labels=["well", "ill", "dead"], action_labels=["wait", "treat"])
    assert made.labels == Labels(["well", "ill", "dead"], ["wait", "treat"])
    assert (made.num_states, made.state.tolist(), made.action.tolist()) == (3, [0, 1, 1], [0, 1, 0])


@pytest.mark.parametrize(
    "values",
    [
        [30, 10, 30],
        [30.0, 10.0, 30.0],
        np.array([30, 10, 30], dtype=np.int8),
        pd.array([30, 10, 30], dtype="Int64"),
        pd.Categorical([30, 10, 30]),
    ],
)
def test_numbers_are_labels_too(values):
    made = read(table(s=values, t=[20, 20, 10]))
    assert made.labels.states == ("10", "20", "30")
    assert made.state.tolist() == [2, 0, 2]
    assert made.next_state.tolist() == [1, 1, 0]


def test_episodes_of_a_table():
    made = read(table(e=["p7", "p3", "p7"]), episode="e")
    assert made.episode[0] == made.episode[2] != made.episode[1]


def test_a_dict_of_lists_is_a_table():
    assert read({"s": ["x"], "a": [0], "t": ["y"]}).labels.states == ("x", "y")


@pytest.mark.parametrize(
    "values",
    [
        ["well", None, "ill"],
        [1.0, np.nan, 2.0],
        pd.array(["well", pd.NA, "ill"], dtype="string"),
        pd.array([1, pd.NA, 2], dtype="Int64"),
        np.array(["well", pd.NA, "ill"], dtype=object),
        pd.to_datetime(["2020-01-01", None, "2020-01-02"]),
    ],
    ids=["None", "nan", "string-NA", "Int64-NA", "object-NA", "NaT"],
)
@pytest.mark.parametrize("column", ["s", "a", "t", "e"])
def test_missing_values_are_refused(column, values):
    data = table(e=[1, 1, 2])
    data[column] = values
    with pytest.raises(
        DataError, match=rf"The column '{column}' has no value in row 1; drop or fill such rows first\."
    ):
        read(data, episode="e")


@pytest.mark.parametrize(
    ("changed", "more", "message"),
    [
        ({"s": [0.5, 1.0, 2.0]}, {}, r"The column 's' must hold whole numbers or labels\. Got 0\.5 in row 0"),
        ({"s": [0.0, np.inf, 2.0]}, {}, r"The column 's' .* row 1"),
        ({}, {"state_labels": ["well"]}, r"The column 's' has the unknown label '?.*ill.*'? in row 1\."),
        ({}, {"action_labels": ["wait"]}, r"The column 'a' has the unknown label .*treat.* in row 1\."),
        ({}, {"state_labels": ["well", "ill", "ill"]}, r"The label 'ill' appears more than once"),
        ({"t": [0, 1, 2]}, {}, r"The state column mixes texts and numbers; make it one or the other\."),
    ],
)
def test_bad_tables(changed, more, message):
    with pytest.raises(DataError, match=message):
        read(table(**changed), **more)


def test_missing_columns_and_empty_tables():
    with pytest.raises(DataError, match=r"There is no column 's'; the table has 'a', 't'\."):
        read(table().drop(columns="s"))
    with pytest.raises(DataError, match=EMPTY):
        read(table().iloc[:0])
    with pytest.raises(DataError, match=EMPTY):
        read(table().iloc[:0], state_labels=["x"], action_labels=["y"])


# ---------------------------------------------------------------------------------------------- labels, MLE


def test_labels_survive_from_table_to_estimate_and_posterior():
    made = read(table())
    task = Task(reward=[0.0, 1.0], discount=0.9)
    fitted = fit_mle(made, task=task, epsilon=0.1)
    assert made.counts.labels == fitted.labels == fitted.certificate.labels == made.labels
    assert sample_dirichlet(made, draws=2, seed=0, task=task).labels == made.labels
    named = Task(reward=[0.0, 1.0], discount=0.9, labels=Labels(["ill", "well"], ["treat", "wait"]))
    assert fit_mle(batch(), task=named).labels == named.labels
    swapped = Task(reward=[0.0, 1.0], discount=0.9, labels=Labels(["well", "ill"]))
    with pytest.raises(DataError, match=r"The state labels of the data and of the task differ at id 0"):
        match(made, swapped)


def test_mle_by_hand():
    # Row (0, 0): counts 0 and 2, delta 0.5: (0.5, 2.5) / 3. Rows without data are uniform.
    fitted = fit_mle(Transitions([0, 0], [0, 0], [1, 1], num_states=2, num_actions=2), delta=0.5)
    np.testing.assert_allclose(fitted.T, [[[1 / 6, 5 / 6], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]], rtol=1e-15)
    assert fitted.method == "MLE"
    assert fitted.certificate is None


def test_mle_certificate_does_not_change_the_model():
    task = Task(reward=[0.0, 1.0], discount=0.5)
    plain, certified = fit_mle(batch()), fit_mle(batch(), task=task, epsilon=0.2)
    np.testing.assert_array_equal(plain.T, certified.T)
    assert len(certified.certificate.constraints) == 2  # one valid and one invalid action in both states


def test_mle_bad_input():
    with pytest.raises(DataError, match=r"The 'delta' parameter must be a number in \(0, inf\)\. Got 0 instead\."):
        fit_mle(batch(), delta=0)
    with pytest.raises(DataError, match=r"A certificate needs the task as well as epsilon; pass task=\.\.\."):
        fit_mle(batch(), epsilon=1.0)
    with pytest.raises(DataError, match=r"The task's reward must cover 2 states\. Got rewards for 3 instead\."):
        fit_mle(batch(), task=Task(reward=[0.0, 0.0, 0.0], discount=0.5))


def test_a_part_keeps_what_the_whole_is_about():
    labels = Labels(actions=["wait", "treat"])
    whole = Transitions([0, 1, 2], [0, 1, 0], [1, 2, 0], num_states=4, num_actions=2, episode=[7, 7, 9], labels=labels)
    part = whole.where(np.array([True, False, True]))
    assert part.state.tolist() == [0, 2]
    assert part.next_state.tolist() == [1, 0]
    assert part.episode.tolist() == [7, 9]
    assert (part.num_states, part.num_actions, part.labels) == (4, 2, whole.labels)
    assert part.counts.N.sum() == 2
