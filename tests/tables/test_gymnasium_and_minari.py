"""Rollouts and stored datasets."""

import gymnasium
import minari
import numpy as np
import pytest
from minari.data_collector import EpisodeBuffer

import bitl
from bitl.analysis.case import read_data
from bitl.errors import DataError
from bitl.tables import Columns


@pytest.fixture
def lake():
    return gymnasium.make("FrozenLake-v1", is_slippery=True)


def test_rollouts_follow_the_environment(lake):
    world = bitl.worlds.from_gymnasium(lake, discount=0.9)
    batch = bitl.read_rollouts(lake, np.full((16, 4), 0.25), episodes=50, seed=3)
    assert int(batch.episode.max()) + 1 == 50
    assert (world.T[batch.state, batch.action, batch.next_state] > 0).all(), "only moves that can happen"
    again = bitl.read_rollouts(lake, np.full((16, 4), 0.25), episodes=50, seed=3)
    np.testing.assert_array_equal(batch.counts.N, again.counts.N)
    fixed = bitl.read_rollouts(lake, lambda s: s % 4, episodes=3, seed=0)
    np.testing.assert_array_equal(fixed.action, fixed.state % 4)
    assert len(bitl.read_rollouts(lake, np.zeros(16, int), episodes=2, seed=0, max_steps=1)) == 2


def test_rollouts_need_discrete_spaces(lake):
    with pytest.raises(DataError, match=r"observations of .* must be Discrete and count from 0"):
        bitl.read_rollouts(gymnasium.make("CartPole-v1"), lambda _: 0, episodes=1, seed=0)
    with pytest.raises(DataError, match=r"The policy must have shape \(16,\) or \(16, 4\)"):
        bitl.read_rollouts(lake, np.zeros(3), episodes=1, seed=0)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_minari_datasets(tmp_path, monkeypatch, lake):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    batch = bitl.read_rollouts(lake, np.full((16, 4), 0.25), episodes=4, seed=0)
    buffers = []
    for number in range(4):
        rows = np.flatnonzero(batch.episode == number)
        ends = np.arange(len(rows)) == len(rows) - 1
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=[*batch.state[rows].tolist(), int(batch.next_state[rows[-1]])],
                actions=batch.action[rows].tolist(),
                rewards=[0.0] * len(rows),
                terminations=ends.tolist(),
                truncations=[False] * len(rows),
            )
        )
    dataset = minari.create_dataset_from_buffers("test/lake-v0", buffers, env=lake, author="nobody", algorithm_name="x")
    for data in (dataset, "test/lake-v0"):
        read = bitl.read_minari(data)
        np.testing.assert_array_equal(read.counts.N, batch.counts.N)
        np.testing.assert_array_equal(read.episode, batch.episode)
    case = read_data("minari:test/lake-v0", Columns())
    assert (case.num_states, case.num_actions, len(case)) == (16, 4, len(batch))
    with pytest.raises(DataError, match="The Minari dataset 'test/none-v0' cannot be loaded"):
        bitl.read_minari("test/none-v0")
