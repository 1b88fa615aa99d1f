"""Reward files."""

import numpy as np
import pytest

from bitl import Labels, read_reward
from bitl.errors import DataError

LABELS = Labels(("ill", "well"), ("treat", "wait"))


def read(folder, text):
    (folder / "r.csv").write_text(text)
    return read_reward(folder / "r.csv")


def test_per_state_and_per_action(tmp_path):
    rewards = read(tmp_path, "state,reward\nwell,1\nill,-0.5\n")
    np.testing.assert_array_equal(rewards.reward(LABELS), [-0.5, 1.0])
    assert rewards.states == ("well", "ill")
    both = read(tmp_path, "Action;State;Reward\ntreat;ill;1e1\nwait;ill;0\ntreat;well;2\nwait;well;3\n\n")
    np.testing.assert_array_equal(both.task(LABELS, discount=0.5).reward, [[10.0, 0.0], [2.0, 3.0]])
    assert both.actions == ("treat", "wait")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty; its first line must be state,reward"),
        ("state,reward\n", "has no line below its header"),
        ("state,value\nill,1\n", "must be state,reward or state,action,reward. Got 'state,value'"),
        ("state,reward\nill,much\n", "The reward in line 2 of .*r.csv must be a number. Got 'much'"),
        ("state,reward\nill,nan\n", "The reward in line 2 of .* Got 'nan'"),
        ("state,reward\nill,1e999\n", "The reward in line 2 of .* Got '1e999'"),
        ("state,reward\nill,1\n\nill,2\n", "Line 4 of .*r.csv gives the state 'ill' a second reward"),
        ("state,reward\nill\n", "Line 2 of .*r.csv must have 2 fields. Got 1"),
        ("state,reward\n,1\nill,2\n", "Line 2 of .*r.csv is a row without a state"),
        ("state,reward\n-1,1\n0,2\n", "Line 2 of .*r.csv is a row with a negative state"),
    ],
)
def test_bad_files(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read(tmp_path, text)


def test_files_that_are_not_there_or_not_text(tmp_path):
    with pytest.raises(DataError, match="There is no reward file"):
        read_reward(tmp_path / "r.csv")
    (tmp_path / "r.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not text in UTF-8"):
        read_reward(tmp_path / "r.csv")


def test_rewards_and_data_must_speak_of_the_same_states(tmp_path):
    with pytest.raises(DataError, match=r"r.csv has no reward for the state 'well'; add a line for each"):
        read(tmp_path, "state,reward\nill,1\n").reward(LABELS)
    with pytest.raises(DataError, match="no reward for the state 'ill' with the action 'wait' and 2 more"):
        read(tmp_path, "state,action,reward\nill,treat,1\n").reward(LABELS)
    with pytest.raises(DataError, match="gives a reward to the state 'dead', which the data do not have"):
        read(tmp_path, "state,reward\ndead,1\n").reward(LABELS)
    with pytest.raises(DataError, match="gives a reward to the action 'cut', which the data do not have"):
        read(tmp_path, "state,action,reward\nill,cut,1\n").reward(LABELS)
