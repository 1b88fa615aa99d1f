"""Traffic lights: each level is reached by what should reach it."""

import numpy as np
import pytest

import bitl
from bitl.analysis.case import Case, Settings
from bitl.analysis.checks import LOOK, OK, OPEN, SIGNS, STOP, checks, worst

FIT = {
    "method": "ITL",
    "overruled_share": 0.0,
    "certificate": {"holds": True, "epsilon": 1.0, "constraints": 3, "violations": 0, "where": []},
}
SAMPLE = {"method": "BITL", "rhat": 1.0, "ess": 500.0, "draws": 100, "draws_without_violation": 100, "warnings": []}


def lights(visits=((9, 0), (0, 9)), fit=FIT, sample=SAMPLE, refused=()):
    N = np.zeros((2, 2, 2))
    N[:, :, 0] = visits
    counts = bitl.Counts(N)
    task = bitl.Task(reward=[0.0, 1.0], discount=0.5)
    case = Case(Settings("", "", 0.5, 1.0), counts, task, bitl.ExpertActions.observed(counts), {"refused": refused})
    return {check.title: check for check in checks(case, fit, sample)}


def test_all_is_well():
    found = lights()
    assert {check.level for check in found.values()} == {OK}
    assert worst(list(found.values())) == OK
    assert len(set(SIGNS.values())) == 4, "signs differ in shape"


@pytest.mark.parametrize(
    ("arguments", "title", "level"),
    [
        ({"visits": ((9, 0), (0, 0))}, "Coverage", LOOK),
        ({"visits": ((9, 0), (0, 4))}, "Thin evidence", LOOK),
        ({"refused": [{"number": 3}]}, "Rows left out", LOOK),
        ({"fit": None}, "Certificate", OPEN),
        ({"fit": {**FIT, "overruled_share": 0.1}}, "Data against experts", LOOK),
        ({"fit": {**FIT, "overruled_share": 0.3}}, "Data against experts", STOP),
        ({"sample": None}, "Uncertainty", OPEN),
        ({"sample": {**SAMPLE, "rhat": 1.05}}, "Agreement of runs", LOOK),
        ({"sample": {**SAMPLE, "rhat": 1.2}}, "Agreement of runs", STOP),
        ({"sample": {**SAMPLE, "rhat": None}}, "Agreement of runs", STOP),
        ({"sample": {**SAMPLE, "ess": 200.0}}, "Effective draws", LOOK),
        ({"sample": {**SAMPLE, "ess": 20.0, "warnings": ["More."]}}, "Effective draws", STOP),
        ({"sample": {**SAMPLE, "draws_without_violation": 99}}, "Draws and experts", STOP),
        ({"sample": {**SAMPLE, "method": "PS"}}, "Draws and experts", LOOK),
    ],
)
def test_each_light(arguments, title, level):
    found = lights(**arguments)
    assert found[title].level == level
    assert worst(list(found.values())) == level


def test_a_violated_certificate_in_words():
    where = [{"state": "ill", "action": "treat", "other": "wait", "kind": "separation", "excess": 2.5}]
    fit = {
        **FIT,
        "method": "MLE",
        "certificate": {**FIT["certificate"], "holds": False, "violations": 1, "where": where},
    }
    check = lights(fit=fit)["Certificate"]
    assert check.level == STOP
    assert "in “ill”, where “treat” should be clearly better than “wait” and misses that by 2.5." in check.words
