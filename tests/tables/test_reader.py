"""Tables in every form people have them, and what is wrong with them, by line."""

import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import bitl
from bitl.errors import DataError
from bitl.tables import Columns, read_table

LOG = {
    "episode": ["a", "a", "a", "b", "b"],
    "step": [0, 1, 2, 0, 1],
    "state": ["ill", "ill", "well", "ill", "well"],
    "action": ["treat", "wait", "wait", "treat", "wait"],
}
CSV = (
    "episode,step,state,action\n" + "\n".join(",".join(map(str, row)) for row in zip(*LOG.values(), strict=True)) + "\n"
)


def write(path, text):
    path.write_text(text)
    return path


def forms(folder):
    frame = pd.DataFrame(LOG)
    pyarrow.parquet.write_table(pa.table(LOG), folder / "log.parquet")
    (folder / "many").mkdir()
    for i in range(2):
        part = pa.table(LOG).slice(3 * i, 3)
        pyarrow.parquet.write_table(part, folder / "many" / f"{i}.parquet")
    return {
        "csv": write(folder / "log.csv", CSV),
        "semicolons": write(folder / "semi.csv", CSV.replace(",", ";")),
        "tabs": write(folder / "log.tsv", CSV.replace(",", "\t")),
        "windows": write(folder / "dos.csv", "\ufeff" + CSV.replace("\n", "\r\n")),
        "parquet": folder / "log.parquet",
        "folder": folder / "many",
        "pandas": frame,
        "categories": frame.astype({"state": "category", "action": "category"}),
        "polars": pl.DataFrame(LOG),
        "arrow": pa.table(LOG),
        "arrays": {key: np.array(values) for key, values in LOG.items()},
    }


def test_every_form_gives_the_same_transitions(tmp_path):
    for name, data in forms(tmp_path).items():
        table = read_table(data)
        assert table.labels == bitl.Labels(("ill", "well"), ("treat", "wait")), name
        got = [column.tolist() for column in (table.state, table.action, table.next_state, table.episode)]
        assert got == [[0, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1]], name
        assert (table.rows, table.ends, table.refused) == (5, 2, ()), name
        np.testing.assert_array_equal(table.start(), [1.0, 0.0])


def test_the_order_of_rows_does_not_matter_if_there_are_steps():
    shuffled = pd.DataFrame(LOG).iloc[[4, 2, 0, 3, 1]]
    a, b = read_table(LOG), read_table(shuffled)
    np.testing.assert_array_equal(a.transitions().counts.N, b.transitions().counts.N)


def test_next_states_may_be_a_column_and_columns_have_any_name():
    table = read_table({"s": [1, 2], "a": [0, 0], "then": [2, 10]}, state="s", action="a", next_state="then")
    assert table.labels.states == ("1", "2", "10"), "numbers in the order of numbers"
    assert table.num_episodes is None
    assert table.next_state.tolist() == [1, 2]
    with pytest.raises(DataError, match="no column of episodes, so where they begin is not known"):
        table.start()


def test_large_ids_are_kept_to_the_digit(tmp_path):
    big = 2**53
    table = read_table({"state": [big, big + 1], "action": [0, 0], "next_state": [big + 1, big]})
    assert table.labels.states == (str(big), str(big + 1))
    path = write(tmp_path / "big.csv", f"state,action,next_state\n{big},0,{big + 1}\n{big + 1},0,{big}\n")
    assert read_table(path).labels.states == (str(big), str(big + 1)), "also where all cells are text"


def test_blank_cells_are_missing_in_every_column(tmp_path):
    text = "episode,step,state,action\n1,0,3.0,0\n1,1,4.0,0\n1,2,3.0,0\n"
    for row, words in (
        ("  ,3,4.0,0", "without an episode"),
        ("1,  ,4.0,0", "without a step"),
        ("1,3,  ,0", "without a state"),
    ):
        table = read_table(write(tmp_path / "log.csv", text + row + "\n" + "2,0,3.0,0\n2,1,3.0,0\n"))
        assert [(r.reason, r.lines.tolist()) for r in table.refused if len(r.lines) and r.lines[-1] == 5] == [
            (words, [5])
        ]
        assert table.labels.states == ("3", "4")[: len(table.labels.states)], "a blank does not make numbers text"


def test_labels_beyond_the_data_and_their_natural_order():
    table = read_table({**LOG, "state": ["s2", "s2", "s10", "s2", "s10"]}, states=["s1"], actions=["operate"])
    assert table.labels.states == ("s1", "s2", "s10")
    assert table.labels.actions == ("operate", "treat", "wait")
    assert table.transitions().counts.visits[0].sum() == 0


def test_refused_rows_are_named_by_line(tmp_path):
    path = write(
        tmp_path / "log.csv",
        "episode,step,state,action\n1,0,ill,treat\n1,1,ill,wait\n\n1,2,well,wait\n1,2,well,wait\n"
        "2,0,ill,treat\n2,1,well\n2,3,ill,treat\n2,4,,treat\n2,5,well,\n,6,ill,wait\n3,x,well,wait\n3,1,well,wait\n",
    )
    table = read_table(path)
    assert {refusal.reason: refusal.lines.tolist() for refusal in table.refused} == {
        "repeating an earlier row's episode and step": [6],
        "with too few or too many fields": [8],
        "before a row without a usable state": [9],
        "without a state": [10],
        "without an episode": [12],
        "without a step": [13],
    }
    assert (table.ends, table.gaps, len(table)) == (3, 1, 2)
    with pytest.raises(
        DataError, match=r"log.csv has rows that cannot be used: 1 row repeating .* \(line 6\); .*--drop"
    ):
        table.transitions()
    assert len(table.transitions(refused="drop", rare="keep")) == 2
    assert "2 episodes" not in str(table)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": [0, 1, -1, 0, 1]}, r"1 row with a negative state \(row 2\)"),
        ({"state": [0.0, 1.5, 1, 0, 1]}, r"1 row with a state that is not a whole number \(row 1\)"),
        ({"state": [0.0, np.nan, 1, 0, 1]}, r"1 row without a state \(row 1\)"),
        ({"action": ["treat", None, "wait", "treat", "wait"]}, r"1 row without an action \(row 1\)"),
        ({"action": ["treat", " ", "wait", "treat", "wait"]}, r"1 row without an action \(row 1\)"),
        ({"step": [0, 1, 1, 0, 0]}, r"2 rows repeating an earlier row's episode and step \(rows 2, 4\)"),
        ({"next_state": ["ill", None, "well", "well", None]}, r"1 row without a next state \(row 1\)"),
    ],
)
def test_bad_cells(change, words):
    with pytest.raises(DataError, match=words):
        read_table({**LOG, **change}).transitions(rare="keep")


def test_an_action_that_appears_once_may_be_a_typo():
    actions = ["treat", "treta", "wait", "treat", "wait"]
    table = read_table({**LOG, "action": actions})
    with pytest.raises(DataError, match=r"The action 'treta' appears only once, in row 1 .* may be a typo of 'treat'"):
        table.transitions()
    assert table.transitions(rare="keep").num_actions == 2  # 'wait' stands in last rows only: it leads nowhere


def test_steps_may_be_times_or_text_and_gaps_are_not_bridged():
    times = pd.to_datetime(
        ["2026-01-01 08:00", "2026-01-01 09:30", "2026-01-02 10:00", "2026-01-01 11:00", "2026-01-03 12:00"]
    )
    assert len(read_table({**LOG, "step": times})) == 3
    assert len(read_table({**LOG, "step": [str(t) for t in times]})) == 3
    assert len(read_table({**LOG, "step": list("abcab")})) == 3
    natural = read_table({**LOG, "step": ["day 2", "day 9", "day 10", "day 1", "day 2"]})
    assert natural.next_state.tolist() == [0, 1, 1], "day 10 follows day 9"
    with pytest.raises(DataError, match=r"The steps hold dates such as '1/2/2020', whose order is not certain"):
        read_table({**LOG, "step": ["1/2/2020", "1/10/2020", "1/11/2020", "12/31/2019", "1/1/2020"]})
    table = read_table({**LOG, "step": [0, 1, 5, 0, 1]})
    assert (len(table), table.gaps) == (2, 1)
    assert "1 row has no next state because the following step is missing" in str(table)


@pytest.mark.parametrize("lost", ["1,c", ",c,x"])
def test_rows_that_cannot_be_placed_are_not_bridged(tmp_path, lost):
    """Without steps, nobody knows that b was followed by d: the line between them may be of the same episode."""
    text = f"episode,state,action\n1,a,x\n1,b,x\n{lost}\n1,d,x\n1,e,x\n2,a,x\n2,b,x\n"
    table = read_table(write(tmp_path / "log.csv", text))
    names = table.labels.states
    pairs = [(names[s], names[t]) for s, t in zip(table.state, table.next_state, strict=True)]
    assert pairs == [("a", "b"), ("d", "e"), ("a", "b")]
    assert {r.reason: r.lines.tolist() for r in table.refused}["before a row that cannot be placed"] == [3]
    complete = read_table(write(tmp_path / "log.csv", text.replace(lost, "3,c,x")))
    assert (len(complete), complete.refused) == (4, ()), "a row of another episode is in nobody's way"


def test_compressed_files_may_be_cut_within_a_letter(tmp_path):
    """What is read of a file to see its header may end in the middle of a letter of two bytes."""
    for shift in range(7):
        text = "x" * shift + "episode,state,action\n" + "1,é,x\n" * 10_000
        (tmp_path / "log.csv.gz").write_bytes(gzip.compress(text.encode()))
        assert len(read_table(tmp_path / "log.csv.gz", episode="x" * shift + "episode")) == 9_999


def test_rewards_may_be_a_column(tmp_path):
    table = read_table({**LOG, "pay": [0, 0, 2.5, 0, 2.5]}, reward="pay")
    np.testing.assert_array_equal(table.rewards, [0.0, 2.5])
    with pytest.raises(
        DataError, match=r"must be constant per state, but state 'ill' has 0 and 1 \(for example in row 1\)"
    ):
        read_table({**LOG, "pay": [0, 1, 2, 0, 2]}, reward="pay")
    with pytest.raises(DataError, match="reward column of the table must hold numbers only"):
        read_table({**LOG, "pay": ["0", "x", "2", "0", "2"]}, reward="pay")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("empty.csv", "", "empty.csv is empty: there is no header line"),
        ("head.csv", "episode,state,action\n", "head.csv is empty: there is no row below the header"),
        ("blank.csv", "episode,state,action\n\n\n", "blank.csv is empty: there is no row below the header"),
        ("twice.csv", "state,state\n1,2\n", "has the column 'state' more than once"),
        ("half.parquet", "PAR1 and then nothing", "half.parquet cannot be read as Parquet: .* is it complete"),
        ("log.xlsx", "x", "neither .csv, .tsv nor .parquet"),
        ("names.csv", "s,a,next_state\n1,2,3\n", "There is no column 'state' for the state; the table has 's', 'a', "),
        ("loose.csv", "state,action\n1,2\n", "neither a column of next states nor one of episodes"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, text, words):
    with pytest.raises(DataError, match=words):
        read_table(write(tmp_path / name, text))


def test_files_that_are_not_text_or_not_there(tmp_path):
    (tmp_path / "bytes.csv").write_bytes(b"state,action,next_state\n\xff\xfe,1,2\n")
    with pytest.raises(DataError, match=r"bytes\.csv is not text in UTF-8"):
        read_table(tmp_path / "bytes.csv")
    with pytest.raises(DataError, match=r"There is no file .*nowhere\.csv"):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match="a path, a DataFrame or a dict of columns of equal length"):
        read_table({"state": [1], "action": [1, 2]})
    twice = pa.Table.from_arrays([pa.array([1, 2])] * 3, names=["state", "state", "action"])
    with pytest.raises(DataError, match="The table has the column 'state' more than once; rename one of them"):
        read_table(twice, episode="action")
    with pytest.raises(DataError, match="The column 'state' holds lists or records"):
        read_table({"state": [[1], [2]], "action": [1, 2], "next_state": [1, 2]})


def test_measurements_are_not_states():
    values = np.arange(30_000)
    with pytest.raises(DataError, match="The table has 30,000 states and 1 actions, too many"):
        read_table({"state": values, "action": np.zeros(30_000, int), "next_state": values})


def test_a_cut_off_parquet_file(tmp_path):
    pyarrow.parquet.write_table(pa.table(LOG), tmp_path / "log.parquet")
    content = (tmp_path / "log.parquet").read_bytes()
    (tmp_path / "log.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_table(tmp_path / "log.parquet")


def test_many_batches_are_one_table(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    n = 5000
    log = {"episode": np.arange(n) // 10, "step": np.arange(n) % 10}
    log |= {"state": rng.integers(7, size=n), "action": rng.integers(3, size=n)}
    pyarrow.parquet.write_table(pa.table(log), tmp_path / "log.parquet", row_group_size=64)
    pd.DataFrame(log).to_csv(tmp_path / "log.csv", index=False)
    monkeypatch.setattr("bitl.tables.sources.BLOCK", 997)
    want = bitl.Transitions.from_episodes(
        [(log["state"][i : i + 10], log["action"][i : i + 9]) for i in range(0, n, 10)], num_states=7, num_actions=3
    )
    for name in ("log.parquet", "log.csv"):
        batch = read_table(tmp_path / name).transitions()
        np.testing.assert_array_equal(batch.counts.N, want.counts.N)
        np.testing.assert_array_equal(batch.episode, want.episode)


def test_fingerprints_tell_files_apart(tmp_path):
    a = read_table(write(tmp_path / "a.csv", CSV)).fingerprint
    assert a.startswith("sha256:")
    assert a == read_table(write(tmp_path / "b.csv", CSV)).fingerprint
    assert a != read_table(write(tmp_path / "a.csv", CSV.replace("treat", "cut"))).fingerprint
    assert read_table(LOG).fingerprint == read_table(pd.DataFrame(LOG)).fingerprint


def test_columns_print_what_is_missing():
    with pytest.raises(DataError, match="--episode-column or, in Python, episode="):
        Columns(episode="stay").resolve(["state", "action"])
