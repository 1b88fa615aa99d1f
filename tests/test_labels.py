import pytest

from bitl import DataError, Labels


def test_names_and_numbers():
    labels = Labels(["low", "high"], ["wait", "treat"])
    assert (labels.state(1), labels.action(0)) == ("high", "wait")
    assert (labels.state_id("high"), labels.action_id("treat"), labels.state_id(0)) == (1, 1, 0)
    nothing = Labels()
    assert (nothing.state(4), nothing.action(2)) == ("state 4", "action 2")
    assert nothing.state_id(4) == 4


def test_whatever_is_given_becomes_text():
    assert Labels([1, 2.5]).states == ("1", "2.5")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Labels(["a", "b", "a"]),
            r"Each state needs a label of its own\. The label 'a' appears more than once\.",
        ),
        (
            lambda: Labels(actions=[1, "1"]),
            r"Each action needs a label of its own\. The label '1' appears more than on",
        ),
        (lambda: Labels("abc"), r"The state labels must be a list of names\. Got 'abc' instead\."),
        (lambda: Labels(["a"]).state_id("z"), r"There is no state named 'z'; the data has 'a'\."),
        (lambda: Labels().action_id("z"), r"There is no action named 'z'; the data has no names, only numbers\."),
        (lambda: Labels(["a", "b"]).state_id(2), r"There is no state 2; ids run from 0 to 1\."),
        (lambda: Labels().state_id(-1), r"There is no state -1"),
        (
            lambda: Labels(["a"]).check_sizes(2, None),
            r"There must be one label per state\. Got 1 labels for 2 states\.",
        ),
        (lambda: Labels(actions=["a"]).check_sizes(2, 3), r"one label per action\. Got 1 labels for 3 actions\."),
        (lambda: Labels(["a", "b"]).merge(Labels(["a", "c"])), r"The state labels .* differ at id 1: \('b',\) against"),
        (lambda: Labels(["a"]).merge(Labels(["a", "c"])), r"The state labels .* differ at id 1: \(\) against \('c',\)"),
        (lambda: Labels(None, ["x"]).merge(Labels(None, ["y"])), r"The action labels .* differ at id 0: \('x',\)"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(DataError, match=message):
        call()


def test_merge_completes():
    assert Labels(["a"]).merge(Labels(None, ["x"])) == Labels(["a"], ["x"])
    assert Labels(["a"], ["x"]).merge(Labels(["a"])) == Labels(["a"], ["x"])
    assert Labels().merge(Labels(["a"])) == Labels(["a"])
