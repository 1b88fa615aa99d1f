"""The counterfactual figure: what each method says about an action never taken."""

import numpy as np
import pytest

from bitl import DataError, Estimate, Labels, Posterior, Task, Transitions, fit_mle, sample_dirichlet
from bitl.report import style
from bitl.report.next_states import _wrap, draw_next_states, next_states

LABELS = Labels(("low", "middle", "high", "gone"), ("wait", "treat"))


@pytest.fixture
def batch():
    return Transitions([0, 0, 1, 2, 2], [0, 0, 0, 0, 0], [1, 1, 2, 3, 0], num_states=4, num_actions=2, labels=LABELS)


def model(row):
    T = np.full((4, 2, 4), 0.25)
    T[0, 1] = row
    return Estimate(T, "mine", labels=LABELS)


def test_most_likely_states_come_first_and_the_rest_is_lumped():
    answer = next_states({"mine": model([0.1, 0.2, 0.6, 0.1])}, state="low", action="treat", top=2)
    assert answer.names == ("high", "middle", "other (2 states)")
    assert answer.states == (2, 1)
    np.testing.assert_allclose(answer.predictions[0].probability, [0.6, 0.2, 0.2])
    assert answer.predictions[0].low is None
    assert not answer.predictions[0].uniform


def test_mle_is_uniform_where_nothing_was_seen_and_does_not_choose_the_states(batch):
    both = {"MLE": fit_mle(batch), "mine": model([0.0, 0.1, 0.2, 0.7])}
    answer = next_states(both, state="low", action="treat", top=2)
    assert [p.uniform for p in answer.predictions] == [True, False]
    assert answer.names[:2] == ("gone", "high"), "the uniform answer has no favourites"
    np.testing.assert_allclose(answer.predictions[0].probability, [0.25, 0.25, 0.5])
    seen = next_states(both, state="low", action="wait", top=2)
    assert not seen.predictions[0].uniform


def test_a_posterior_has_intervals_and_the_other_states_one_of_their_own(batch):
    posterior = sample_dirichlet(batch, delta=0.5, draws=4000, seed=0)
    answer = next_states({"PS": posterior}, state="low", action="wait", top=1)
    p = answer.predictions[0]
    assert answer.names[0] == "middle"
    # Dir(0.5, 2.5, 0.5, 0.5): the probability of "middle" is Beta(2.5, 1.5)
    assert p.probability[0] == pytest.approx(2.5 / 4, abs=4 * np.sqrt(0.0469 / 4000))
    assert p.low[0] == pytest.approx(0.2446, abs=0.03)
    assert p.high[0] == pytest.approx(0.9376, abs=0.03)
    np.testing.assert_allclose([p.low[1], p.high[1]], [1 - p.high[0], 1 - p.low[0]], atol=1e-3)
    wide = next_states({"PS": posterior}, state="low", action="wait", top=1, mass=0.99).predictions[0]
    assert wide.low[0] < p.low[0] < p.high[0] < wide.high[0]


def test_rows_for_a_table(batch):
    learned = {"mine": model([0.0, 0.1, 0.2, 0.7]), "PS": sample_dirichlet(batch, delta=0.5, draws=20, seed=0)}
    rows = next_states(learned, state=0, action=1, top=4).rows()
    assert len(rows) == 10
    assert rows[4] == {
        "method": "mine",
        "next_state": "other (0 states)",
        "probability": 0.0,
        "low": None,
        "high": None,
        "uniform": False,
    }
    assert all(row["low"] is not None for row in rows[5:])


def test_the_figure_says_everything_in_words(batch):
    task = Task(reward=[0.0, 0.0, 1.0, 0.0], discount=0.9, labels=LABELS)
    learned = {
        "MLE": fit_mle(batch, task=task, epsilon=0.1),
        "mine": model([0.0, 0.1, 0.2, 0.7]),
        "PS": sample_dirichlet(batch, delta=0.5, draws=20, seed=0),
    }
    answer = next_states(learned, state="low", action="treat", top=2)
    figure = draw_next_states(answer, note="never seen in the data")
    assert figure.get_suptitle() == "After “treat” in: low\nnever seen in the data"
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == ["MLE\n(uniform)", "mine\n", "PS\n"]
    words = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert words == ["gone", "high", "other (2 states)"]
    assert "90 % credible interval" in figure.get_supxlabel()
    widths = [bar.get_width() for bar in figure.axes[1].patches]
    np.testing.assert_allclose(widths, [0.7, 0.2])
    style.pyplot().close(figure)


def test_long_names_break_after_commas():
    name = "PaO2/FiO2 at least 200, MAP below 70, GCS at most 12, creatinine over 4.9"
    assert _wrap(name) == "PaO2/FiO2 at least 200, MAP below 70,\nGCS at most 12, creatinine over 4.9"
    assert _wrap("short") == "short"
    assert max(map(len, _wrap("word " * 30).split("\n"))) <= 40


def test_bad_questions_get_a_sentence():
    one = {"mine": model([0.0, 0.1, 0.2, 0.7])}
    with pytest.raises(DataError, match="no state named 'lowest'"):
        next_states(one, state="lowest", action=0)
    with pytest.raises(DataError, match="There is no action 5; ids run from 0 to 1"):
        next_states(one, state=0, action=5)
    with pytest.raises(DataError, match="no method to compare"):
        next_states({}, state=0, action=0)
    with pytest.raises(DataError, match=r"'mass' parameter must be a number in \(0, 1\)"):
        next_states(one, state=0, action=0, mass=1.0)
    with pytest.raises(DataError, match="'top' parameter must be a whole number of at least 1"):
        next_states(one, state=0, action=0, top=0)
    other = Posterior(np.full((3, 2, 2, 2), 0.5), "PS", np.zeros(3, dtype=int))
    with pytest.raises(DataError, match="The model of PS must have 4 states and 2 actions like the first one"):
        next_states({**one, "PS": other}, state=0, action=0)
    bare = {"mine": Estimate(np.full((4, 2, 4), 0.25), "mine")}
    with pytest.raises(DataError, match=r"4 states and 2 actions\. Got state 4 and action 0"):
        next_states(bare, state=4, action=0)
