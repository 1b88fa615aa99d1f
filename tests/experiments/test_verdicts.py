"""Verdicts on the paper's claims, from results made up so that the answer is known."""

import numpy as np
import pytest

from bitl.experiments import sensitivity, verdicts
from bitl.experiments.reproduction import page, write_page
from bitl.experiments.unit import How
from bitl.experiments.verdicts import FAILS, HOLDS, PARTLY, UNJUDGED

METHODS = ("ITL", "BITL", "MCE", "MLE", "PS")
GOOD = {"ITL": 0.8, "BITL": 0.9, "MCE": 0.7, "MLE": 0.2, "PS": 0.1}
SCORES = tuple(verdicts.SCORES.values())


def study(worlds=("gridworld",), levels=("40",), batches=20, **changes):
    """Return rows in which every claim holds on the gridworld; ``change`` maps (method, metric) to a function."""
    rng = np.random.default_rng(0)
    rows = []
    for world in worlds:
        for level in levels:
            for number in range(batches):
                luck = 0.05 * rng.random()
                for method in METHODS:
                    values = dict.fromkeys(SCORES, GOOD[method] + luck)
                    values |= {"value": 1.0, "leaves_support": float(method not in ("ITL", "BITL"))}
                    values |= {"violations": 0.0 if method in ("ITL", "BITL") else 3.0, "violations_expert": 1.0}
                    values |= {"seconds": 0.01 if method == "ITL" else 1.0, "rhat": 1.0, "ess": 200.0}
                    values |= {"bayesian_regret": 1.0, "bayesian_regret_transfer": 2.0}
                    values |= {
                        name: f(values[name]) for (who, name), f in changes.get("change", {}).items() if who == method
                    }
                    place = ("synthetic", level, world, number)
                    rows += [(*place, 0.0, method, name, value) for name, value in values.items()]
                    for coverage in (0.2, 1.0):
                        reached = 1.0 if coverage == 1 and method in ("ITL", "BITL") else 0.5 - 0.01 * number
                        swept = {"normalised_value": reached, "normalised_value_transfer": 0.5 - 0.01 * number}
                        swept |= {"bayesian_regret": 10 * (1 - reached), "bayesian_regret_transfer": 5 + 0.1 * number}
                        rows += [(*place, coverage, method, name, value) for name, value in swept.items()]
    return rows


def judged(rows):
    return {verdict.claim: verdict.verdict for verdict in verdicts.verdicts(rows)}


def test_where_everything_is_as_claimed_everything_holds():
    found = judged(study())
    assert len(found) == 9
    assert set(found.values()) == {HOLDS}


@pytest.mark.parametrize(
    ("change", "claim", "verdict"),
    [
        ({("MCE", "best_matching"): lambda v: v + 1}, "ITL and BITL beat the baselines", PARTLY),
        ({("PS", name): lambda v: v + 1 for name in SCORES}, "ITL and BITL beat the baselines", FAILS),
        ({("BITL", "violations"): lambda v: v + 0.1}, "Zero violations for ITL and BITL alone", FAILS),
        ({("MCE", "violations"): lambda v: 0 * v}, "Zero violations for ITL and BITL alone", PARTLY),
        ({("ITL", "leaves_support"): lambda v: v + 1}, "Policies stay within the experts' support", FAILS),
        ({("BITL", "leaves_support"): lambda v: v + 0.005}, "Policies stay within the experts' support", PARTLY),
        ({("MCE", "normalised_value"): lambda v: v + 0.15}, "Hard constraints give better worst cases than MCE", FAILS),
        (
            {("ITL", name): lambda v: v + 1 for name in SCORES},
            "BITL is best on the gridworld, ITL on randomworlds",
            FAILS,
        ),
        ({("MCE", "seconds"): lambda v: 0.001 * v}, "ITL is faster than MCE", FAILS),
        (
            {("BITL", "bayesian_regret_transfer"): lambda v: 0 * v},
            "Transfer regret is higher than standard regret",
            FAILS,
        ),
    ],
)
def test_each_claim_can_fail(change, claim, verdict):
    assert judged(study(change=change))[claim] == verdict


def test_claims_about_coverage_can_fail():
    rows = [(*row[:7], 0.5) if row[4] == 1 and row[5:7] == ("ITL", "normalised_value") else row for row in study()]
    assert judged(rows)["Only ITL and BITL converge to the optimum with coverage"] == FAILS
    rows = [(*row[:7], -row[7]) if row[4] > 0 and row[6].startswith("bayesian_regret") else row for row in study()]
    assert judged(rows)["Bayesian regret predicts value"] == FAILS


def test_what_is_missing_is_not_judged():
    rows = [row for row in study() if row[4] != 1 or row[5] != "BITL"]
    assert judged(rows)["Only ITL and BITL converge to the optimum with coverage"] == UNJUDGED
    rows = [row for row in study() if row[4] == 0 or row[3] < 4]
    assert judged(rows)["Bayesian regret predicts value"] == UNJUDGED


def test_on_randomworlds_the_order_is_the_other_way():
    found = judged(study(worlds=("randomworld-00",)))
    assert found["BITL is best on the gridworld, ITL on randomworlds"] == FAILS, "BITL is better in these rows"
    assert judged(study(worlds=("gridworld", "randomworld-00")))["ITL and BITL beat the baselines"] == HOLDS


def test_few_batches_or_methods_decide_nothing():
    assert verdicts.verdicts(study(batches=19)) == []
    assert verdicts.verdicts([row for row in study() if row[5] != "MCE"]) == []


def test_methods_are_compared_on_the_batches_that_all_have_seen():
    rows = study(batches=40)
    lucky = [(*row[:7], row[7] + 5) if row[3] >= 20 and row[5] == "MCE" and row[6] in SCORES else row for row in rows]
    seen = [row for row in lucky if row[5] != "BITL" or row[3] < 20]
    assert judged(seen)["ITL and BITL beat the baselines"] == HOLDS, "MCE was lucky where BITL was not tried"
    assert judged(lucky)["ITL and BITL beat the baselines"] != HOLDS


def test_the_page_has_verdicts_tables_figures_and_costs(tmp_path):
    (tmp_path / "out" / "figures").mkdir(parents=True)
    (tmp_path / "out" / "figures" / "feasible-region.png").write_bytes(b"a picture")
    rows = {"synthetic": study()}
    target = tmp_path / "docs" / "reproduction.md"
    written = write_page(target, rows, tmp_path / "out", how=How(), command="bitl reproduce synthetic")
    assert [path.name for path in written] == ["reproduction.md", "feasible-region.png"]
    assert (tmp_path / "docs" / "reproduction" / "feasible-region.png").read_bytes() == b"a picture"
    text = target.read_text()
    for words in (
        "| ITL is faster than MCE | **holds** |",
        "### Gridworld, 40 % stochastic-policy states, 20 batches",
        "](reproduction/feasible-region.png)",
        "| BITL, gridworld, 40 % (20) | 1.000 | 1.000 | 200 | 100 % |",
        "| MCE, gridworld | 20 | 1.000 | 0.01 |",
    ):
        assert words in text
    few = page({"synthetic": study(batches=3)}, [], "x", how=How(), command="bitl")
    assert "too few to judge the paper's claims" in few


def test_the_walls_that_agree_with_the_text_include_ours():
    assert (11, 12, 14) in sensitivity.walls()
    assert len(sensitivity.walls()) == 18


def test_ties_and_references_change_the_scores():
    todo = [unit for unit in sensitivity.units(1, How()) if unit.wall == (11, 12, 14)]
    found = {unit.method: {row[6]: row[7] for row in sensitivity.compute(unit)} for unit in todo}
    assert found["ITL"]["violations"] == 0 < found[sensitivity.PRACTICE]["violations"]
    first, middle, last = (found[name]["epsilon_matching"] for name in (sensitivity.FIRST, "MLE", sensitivity.LAST))
    assert first > middle > last, "right is often right, down never"
    rows = [row for unit in todo for row in sensitivity.compute(unit)]
    assert f"| epsilon matching | MLE | 0.37 | {middle:.2f} | {middle:.2f} to {middle:.2f} |" in sensitivity.markdown(
        rows
    )
