"""Bins and clusters: from measured values to labelled states."""

from itertools import pairwise

import numpy as np
import pandas
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitl import DataError
from bitl.discretize import Bin, Interval, Scheme, Variable, fit_clusters

COLUMNS = ("pf_ratio", "map", "gcs", "creatinine")


def row(*values):
    return {name: [value] for name, value in zip(COLUMNS, values, strict=True)}


def test_the_papers_worked_example():
    scheme = Scheme.example("hypotension")
    assert scheme.bins(row(150, 65, 10, 5)).tolist() == [[1, 1, 0, 2]]
    assert scheme.shape == (3, 2, 2, 3)
    assert scheme.labels[scheme.states(row(150, 65, 10, 5))[0]] == (
        "PaO2/FiO2 100 to 200, MAP below 70, GCS at most 12, creatinine over 4.9"
    )


@pytest.mark.parametrize(
    ("values", "bins"),
    [
        ((200, 70, 12, 1.9), [0, 0, 0, 0]),
        ((199.9, 69.9, 13, 1.91), [1, 1, 1, 1]),
        ((100, 70, 14, 4.9), [1, 0, 1, 1]),
        ((99.9, 70, 15, 4.91), [2, 0, 1, 2]),
    ],
)
def test_the_edges_of_the_papers_bins(values, bins):
    assert Scheme.example().bins(row(*values)).tolist() == [bins], "scores 13 and 14 belong to the higher bin"


def test_the_papers_rewards():
    scheme = Scheme.example()
    s = int(scheme.encode([1, 1, 0, 2]))
    assert scheme.reward("standard")[s] == 60 - 10 * (1 + 1 + 2)
    assert scheme.reward("transfer")[s] == 60 - 10 * (1 + 2)
    assert scheme.reward("standard").max() == 60
    with pytest.raises(DataError, match="has no reward 'other'; it has 'standard', 'transfer'"):
        scheme.reward("other")


def test_every_kind_of_table():
    polars = pytest.importorskip("polars")
    columns = {"pf_ratio": [150.0, 300.0], "map": [65, 90], "gcs": [10, 15], "creatinine": [5.0, 1.0]}
    scheme = Scheme.example()
    expected = scheme.states({name: np.array(values) for name, values in columns.items()})
    nullable = pandas.DataFrame(columns).astype({"map": "Int64"})
    for table in (columns, pandas.DataFrame(columns), nullable, polars.DataFrame(columns), pyarrow.table(columns)):
        assert scheme.states(table).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["dict", "pandas", "nullable", "arrow"])
def test_a_missing_value_is_refused_whatever_the_table(kind):
    columns = {"pf_ratio": [150.0, 300.0], "map": [65, None], "gcs": [10, 15], "creatinine": [5.0, 1.0]}
    make = {
        "dict": lambda c: c,
        "pandas": pandas.DataFrame,
        "nullable": lambda c: pandas.DataFrame(c).astype({"map": "Int64"}),
        "arrow": pyarrow.table,
    }[kind]
    with pytest.raises(DataError, match="The column 'map' has no value in row 1; fill in such values"):
        Scheme.example().states(make(columns))


def test_wrong_units_are_refused_with_a_sentence():
    scheme = Scheme.example()
    with pytest.raises(DataError, match=r"The median of mean arterial pressure is 0.9; in mmHg it should lie between"):
        scheme.states(row(150, 0.9, 10, 5))
    with pytest.raises(DataError, match=r"convert them to mg/dL"):
        scheme.states(row(150, 65, 10, 88))
    with pytest.raises(DataError, match=r"The column 'gcs' has 2 in row 0, outside \[3, 15\] points"):
        scheme.states(row(150, 65, 2, 5))
    with pytest.raises(DataError, match="There is no column 'gcs'; the table has 'pf_ratio', 'map'"):
        scheme.states({"pf_ratio": [1], "map": [1]})
    with pytest.raises(DataError, match="The column 'map' must hold numbers"):
        scheme.states(row(150, "low", 10, 5))


def gcs(gaps="refuse", **more):
    return Variable("gcs", (Bin("low", "<= 12"), Bin("high", "> 14")), "points", limits="[3, 15]", gaps=gaps, **more)


def test_gaps_are_refused_or_given_to_a_neighbour():
    with pytest.raises(DataError, match=r"The bins of 'gcs' have the gap \(12, 14\] between '\(-inf, 12\]' and"):
        gcs()
    assert gcs("lower").bin_numbers([12, 13, 14, 14.5]).tolist() == [0, 0, 0, 1]
    assert gcs("upper").bin_numbers([12, 13, 14, 14.5]).tolist() == [0, 1, 1, 1]


def test_overlaps_are_refused_or_given_to_a_neighbour():
    def bins(overlaps="refuse"):
        return Variable("x", (Bin("high", ">= 10"), Bin("low", "<= 20")), "1", overlaps=overlaps)

    with pytest.raises(DataError, match=r"The bins of 'x' have the overlap \[10, 20\] between"):
        bins()
    assert bins("lower").bin_numbers([9, 10, 20, 21]).tolist() == [1, 1, 1, 0]
    assert bins("upper").bin_numbers([9, 10, 20, 21]).tolist() == [1, 0, 0, 0]
    with pytest.raises(DataError, match="contain each other"):
        Variable("x", (Bin("a", "< 100"), Bin("b", "[10, 20)"), Bin("c", ">= 100")), "1", overlaps="lower")
    with pytest.raises(DataError, match=r"The bins of 'x' reach from 0 to 20, but its limits are \[0, 100\)"):
        Variable("x", (Bin("a", "[0, 100)"), Bin("b", "[10, 20)")), "1", limits="[0, 100)", overlaps="upper")
    with pytest.raises(DataError, match=r"have the overlap \[5, 5\]"):
        Variable("x", (Bin("a", "<= 5"), Bin("b", ">= 5")), "1")


@given(st.lists(st.floats(-50, 50, allow_nan=False), min_size=1, max_size=6, unique=True), st.floats(-60, 60))
def test_bins_at_any_cuts_partition_the_line(cuts, value):
    cuts = sorted(cuts)
    text = [
        f"< {cuts[0]!r}",
        *(f"[{a!r}, {b!r})" for a, b in pairwise(cuts)),
        f">= {cuts[-1]!r}",
    ]
    variable = Variable("x", tuple(Bin(word, word) for word in text), "1")
    assert variable.bin_numbers([value])[0] == np.searchsorted(cuts, value, side="right")


def test_bins_must_cover_the_limits():
    with pytest.raises(DataError, match=r"The bins of 'x' reach from 0 to 5, but its limits are \[0, 10\]; add bins"):
        Variable("x", (Bin("only", "[0, 5]"),), "1", limits="[0, 10]")
    assert Variable("x", (Bin("only", "[0, 10]"),), "1", limits="[0, 10]").bin_numbers([10]).tolist() == [0]
    with pytest.raises(DataError, match="but its limits are"):
        Variable("x", (Bin("only", "[0, 10)"),), "1", limits="[0, 10]")


@pytest.mark.parametrize("text", ["100 to 200", "[5, 1]", "[3, 3)", "", "[1 2]", ">", "[nan, 2]"])
def test_what_is_no_interval(text):
    with pytest.raises(DataError, match=r"An interval reads like|is empty"):
        Interval.parse(text)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ('unit = "mmHg"\nbins', "needs 'unit'"),
        ("bins", "has no setting 'bin'"),
    ],
)
def test_a_broken_file_gets_a_sentence(change, sentence):
    text = '[[variable]]\nname = "map"\nunit = "mmHg"\nbins = [{ label = "all", interval = "< inf" }]\n'
    new = "bins" if "needs" in sentence else "bin"
    with pytest.raises(DataError, match=sentence):
        Scheme.from_toml(text.replace(change, new))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"Cannot read the scheme .*nothing.toml: No such file"):
        Scheme.from_toml(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_text("[[variable]\n")
    with pytest.raises(DataError, match=r"Cannot read .*bad.toml: "):
        Scheme.from_toml(tmp_path / "bad.toml")
    with pytest.raises(DataError, match="A scheme needs variables"):
        Scheme.from_toml("name = 'empty'\n")
    with pytest.raises(DataError, match="The reward 'r' speaks of 'y'; the variables are 'x'"):
        Scheme.from_dict(
            {
                "variable": [{"name": "x", "unit": "1", "bins": [{"label": "all", "interval": "< inf"}]}],
                "reward": {"r": {"base": 1, "per_bin": {"y": 1}}},
            }
        )


def test_an_interval_is_written_without_rounding():
    for text in ("[0.12345678, 1234567)", "(150000, inf)", "[1e-07, 0.1]"):
        assert Interval.parse(str(Interval.parse(text))) == Interval.parse(text)
    assert str(Interval.parse("[100, 200)")) == "[100, 200)"


def test_a_scheme_survives_the_way_to_plain_data_and_back():
    scheme = Scheme.example()
    assert Scheme.from_dict(scheme.to_dict()) == scheme
    assert scheme.with_normal(bp=75).variables[1].normal == 75
    with pytest.raises(DataError, match="There is no variable 'pulse'"):
        scheme.with_normal(pulse=1)
    with pytest.raises(DataError, match=r"The normal value 500 of 'bp' lies outside its limits \(0, 300\)"):
        scheme.with_normal(bp=500)


@given(st.integers(0, 35))
def test_states_and_bins_are_one_to_one(state):
    scheme = Scheme.example()
    assert scheme.encode(scheme.decode(state)) == state


def test_clusters_find_what_is_there():
    rng = np.random.default_rng(0)
    centres = np.array([[60.0, 1.0], [90.0, 1.2], [75.0, 6.0]])
    truth = rng.integers(3, size=600)
    values = centres[truth] + rng.normal(size=(600, 2)) * [2, 0.2]
    table = {"map": values[:, 0], "crea": values[:, 1]}
    clusters = fit_clusters(table, columns={"map": "mmHg", "crea": "mg/dL"}, num_states=3, seed=0)
    found = clusters.states(table)
    assert [len(np.unique(truth[found == k])) for k in range(3)] == [1, 1, 1]
    assert clusters.labels[0].startswith("cluster 0: map 59.9 mmHg, crea 1")
    assert clusters.labels[0].endswith("mg/dL")
    again = fit_clusters(table, columns={"map": "mmHg", "crea": "mg/dL"}, num_states=3, seed=0)
    np.testing.assert_array_equal(again.centres, clusters.centres)


def test_clusters_of_bad_tables():
    with pytest.raises(DataError, match="The table has 2 distinct rows, too few for 3 clusters"):
        fit_clusters({"x": [1.0, 2.0, 1.0]}, columns={"x": "1"}, num_states=3, seed=0)
    with pytest.raises(DataError, match="The column 'x' has no value in row 1"):
        fit_clusters({"x": [1.0, np.nan]}, columns={"x": "1"}, num_states=1, seed=0)
    with pytest.raises(DataError, match="The column 'y' has the same value in every row"):
        fit_clusters({"x": [1.0, 2.0], "y": [3.0, 3.0]}, columns={"x": "1", "y": "1"}, num_states=2, seed=0)
    with pytest.raises(DataError, match="Clusters need at least one column"):
        fit_clusters({"x": [1.0]}, columns={}, num_states=1, seed=0)
