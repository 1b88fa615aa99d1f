"""Does the paper hold? Each of its claims about the synthetic worlds, judged from the rows of the results store.

Batches are the same for all methods, so methods are compared batch by batch: the mean difference and its standard
error. *Better* (or worse) means by more than two standard errors. The rule of each verdict stands beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from .._types import FloatArray
from ..metrics import cvar
from ..planning import evaluate, plan
from ..report.curves import FEW_POINTS, correlation
from .figures import ENVIRONMENTS
from .store import Row
from .synthetic import world_of
from .unit import LEVELS, ROLLOUT, How, Unit

OURS = ("ITL", "BITL")
BASELINES = ("MCE", "MLE", "PS")
HOLDS, PARTLY, FAILS, UNJUDGED = "holds", "holds partly", "does not hold", "not judged, results are missing"
STRONG = -0.5  # a rank correlation at or below this counts as strong
ENOUGH = 20  # rollout batches per level and world; fewer decide nothing
CONVERGED = 0.99  # of the way from random to optimal
SCORES = {
    "normalised value": "normalised_value",
    "normalised value, transfer": "normalised_value_transfer",
    "best matching": "best_matching",
    "best matching, transfer": "best_matching_transfer",
    "epsilon matching": "epsilon_matching",
    "epsilon matching, transfer": "epsilon_matching_transfer",
}

SEEN = "normalised_value"  # a metric that every method has on every batch
Batch = tuple[str, int, float]  # world, dataset, coverage


@dataclass(frozen=True)
class Verdict:
    """One claim, how it was judged, what came out and the numbers behind it."""

    claim: str
    rule: str
    verdict: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Results:
    """The rows of a study, by (level, environment, method, metric), then by batch."""

    values: Mapping[tuple[str, str, str, str], Mapping[Batch, float]]
    seed: int  #: of the study: it makes the randomworlds

    @classmethod
    def of(cls, rows: Iterable[Row], seed: int = 0) -> Results:
        """Sort the rows; those of rollouts have coverage 0."""
        found: dict[tuple[str, str, str, str], dict[Batch, float]] = defaultdict(dict)
        for _, level, world, dataset, coverage, method, metric, value in rows:
            found[level, world.split("-")[0], method, metric][world, dataset, coverage] = value
        return cls(found, seed)

    def common(self) -> Results:
        """Return the results on batches that every method of the paper has seen."""
        seen: dict[tuple[str, str], list[set[Batch]]] = defaultdict(list)
        for level, name in {key[:2] for key in self.values}:
            for method in (*OURS, *BASELINES):
                seen[level, name].append(set(self.values.get((level, name, method, SEEN), ())))
        kept = {place: set.intersection(*found) for place, found in seen.items()}
        values = {key: {b: v for b, v in found.items() if b in kept[key[:2]]} for key, found in self.values.items()}
        return Results(values, self.seed)

    @property
    def settings(self) -> list[tuple[str, str]]:
        """The levels and environments that have results, in the paper's order."""
        present = {key[:2] for key in self.values}
        return [(level, name) for name in ENVIRONMENTS for level in LEVELS if (level, name) in present]

    def get(self, level: str, environment: str, method: str, metric: str, *, sweep: bool = False) -> dict[Batch, float]:
        """Return a metric over the rollout batches, or over those of the coverage sweep."""
        found = self.values.get((level, environment, method, metric), {})
        return {batch: value for batch, value in sorted(found.items()) if (batch[2] != ROLLOUT) == sweep}

    def mean(self, level: str, environment: str, method: str, metric: str) -> float:
        """Return the mean over the rollout batches, NaN without any."""
        values = list(self.get(level, environment, method, metric).values())
        return float(np.mean(values)) if values else float("nan")

    def less(self, level: str, environment: str, methods: tuple[str, str], metric: str) -> tuple[float, float]:
        """Return the first method's metric less the second's over common batches: mean and standard error."""
        first, second = (self.get(level, environment, method, metric) for method in methods)
        difference = np.array([first[batch] - second[batch] for batch in first if batch in second])
        if len(difference) < 2:
            return float("nan"), float("nan")
        return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))


def verdicts(rows: Iterable[Row], seed: int = 0) -> list[Verdict]:
    """Judge every claim about the synthetic worlds, on the batches that all five methods have seen.

    With fewer than five methods or few such batches none is judged.
    """
    results = Results.of(rows, seed).common()
    for level, name in results.settings:
        if min(len(results.get(level, name, method, "value")) for method in (*OURS, *BASELINES)) < ENOUGH:
            return []
    judges = (beat_baselines, no_violations, stay_in_support, worst_case, best_of_ours, faster_than_mce)
    return [judge(results) for judge in (*judges, converge, regret_predicts, transfer_regret_higher)]


def beat_baselines(results: Results) -> Verdict:
    """ITL and BITL beat MCE, MLE and PS."""
    evidence, better, worse, all_cells = [], 0, 0, 0
    for level, name in results.settings:
        words = []
        for label, metric in SCORES.items():
            means = {method: results.mean(level, name, method, metric) for method in (*OURS, *BASELINES)}
            ours, theirs = (max(group, key=lambda m: means[m]) for group in (OURS, BASELINES))
            mean, error = results.less(level, name, (ours, theirs), metric)
            all_cells += 1
            better += mean > 2 * error
            worse += mean < -2 * error
            words.append(f"{label}: {ours} {means[ours]:.2f}, {theirs} {means[theirs]:.2f} ({mean:+.3f} ± {error:.3f})")
        evidence.append(f"{_where(level, name)}: " + "; ".join(words))
    evidence.insert(
        0, f"better in {better}, worse in {worse}, undecided in {all_cells - better - worse} of {all_cells}"
    )
    verdict = HOLDS if better == all_cells else PARTLY if better > worse else FAILS
    rule = (
        "the better of ITL and BITL against the best baseline, six metrics, every level and world: holds if better in "
    )
    rule += "all, partly if more often better than worse"
    return Verdict("ITL and BITL beat the baselines", rule, verdict, tuple(evidence))


def no_violations(results: Results) -> Verdict:
    """No constraint is violated by ITL or BITL; the baselines violate some."""
    evidence, clean, others = [], True, True
    for level, name in results.settings:
        worst = {m: max(results.get(level, name, m, "violations").values(), default=np.nan) for m in OURS}
        clean &= all(value == 0 for value in worst.values())
        means = {m: results.mean(level, name, m, "violations") for m in BASELINES}
        others &= all(value > 0 for value in means.values())
        words = ", ".join(f"{m} {value:.2f}" for m, value in means.items())
        practice = ", ".join(f"{m} {results.mean(level, name, m, 'violations_expert'):.2f}" for m in OURS)
        evidence.append(
            f"{_where(level, name)}: most in any batch: ITL {worst['ITL']:g}, BITL {worst['BITL']:g}; on average "
            f"{words}; under the paper's practical reference {practice}"
        )
    rule = (
        "holds if neither violates a constraint in any batch and each baseline violates some; partly if only the first"
    )
    verdict = HOLDS if clean and others else PARTLY if clean else FAILS
    return Verdict("Zero violations for ITL and BITL alone", rule, verdict, tuple(evidence))


def stay_in_support(results: Results) -> Verdict:
    """The policies of ITL and BITL take only valid actions in visited states."""
    evidence, worst = [], 0.0
    for level, name in results.settings:
        left = {m: list(results.get(level, name, m, "leaves_support").values()) for m in (*OURS, *BASELINES)}
        worst = max(worst, *(float(np.mean(left[m])) for m in OURS))
        words = ", ".join(f"{m} {sum(found):.0f} of {len(found)}" for m, found in left.items())
        evidence.append(f"{_where(level, name)}: batches whose policy leaves the support: {words}")
    rule = (
        "holds if no batch's policy leaves the experts' support, partly if fewer than 1 in 100 do; the policy of a tie "
        "takes all tied actions, and at epsilon 0 a tie with an action never taken satisfies the constraints"
    )
    verdict = HOLDS if worst == 0 else PARTLY if worst < 0.01 else FAILS
    return Verdict("Policies stay within the experts' support", rule, verdict, tuple(evidence))


def worst_case(results: Results) -> Verdict:
    """The worst five per cent of batches are better with ITL and BITL than with MCE."""
    evidence, wins, number = [], 0, 0
    for level, name in results.settings:
        values = {m: list(results.get(level, name, m, "normalised_value").values()) for m in (*OURS, "MCE")}
        tails = {m: cvar(found, 0.05)[0] if found else np.nan for m, found in values.items()}
        for m in OURS:
            wins += bool(tails[m] > tails["MCE"])
            number += 1
        evidence.append(f"{_where(level, name)}: " + ", ".join(f"{m} {tail:.2f}" for m, tail in tails.items()))
    rule = "CVaR 5 % of the normalised value, ITL and BITL against MCE: holds if both are better everywhere, "
    rule += "partly if mostly"
    verdict = HOLDS if wins == number else PARTLY if wins > number / 2 else FAILS
    return Verdict("Hard constraints give better worst cases than MCE", rule, verdict, tuple(evidence))


def best_of_ours(results: Results) -> Verdict:
    """BITL is best on the gridworld, ITL on randomworlds."""
    evidence, right, wrong = [], 0, 0
    for level, name in results.settings:
        pair = ("BITL", "ITL") if name == "gridworld" else ("ITL", "BITL")
        words = []
        for label, metric in SCORES.items():
            mean, error = results.less(level, name, pair, metric)
            right += mean > 2 * error
            wrong += mean < -2 * error
            words.append(f"{label} {mean:+.3f} ± {error:.3f}")
        evidence.append(f"{_where(level, name)}, {pair[0]} less {pair[1]}: " + "; ".join(words))
    total = len(SCORES) * len(results.settings)
    evidence.insert(
        0, f"as claimed in {right}, the other way in {wrong}, undecided in {total - right - wrong} of {total}"
    )
    rule = "six metrics, every level and world: holds if as claimed in all, partly if more often as claimed than not"
    verdict = HOLDS if right == total else PARTLY if right > wrong else FAILS
    return Verdict("BITL is best on the gridworld, ITL on randomworlds", rule, verdict, tuple(evidence))


def faster_than_mce(results: Results) -> Verdict:
    """ITL trains faster than MCE."""
    evidence, ratios = [], []
    for level, name in results.settings:
        seconds = {m: results.mean(level, name, m, "seconds") for m in (*OURS, "MCE")}
        ratios.append(seconds["MCE"] / seconds["ITL"])
        evidence.append(
            f"{_where(level, name)}: ITL {1000 * seconds['ITL']:.1f} ms, MCE {seconds['MCE']:.2f} s ({ratios[-1]:.0f} "
            f"times), BITL {seconds['BITL']:.1f} s"
        )
    rule = "holds if ITL is faster everywhere, our MCE with its exact gradient and five starts included"
    verdict = HOLDS if min(ratios) > 1 else PARTLY if max(ratios) > 1 else FAILS
    return Verdict("ITL is faster than MCE", rule, verdict, tuple(evidence))


def converge(results: Results) -> Verdict:
    """Only ITL and BITL reach the optimum as coverage grows, on the standard task."""
    evidence, ours, others, missing = [], True, True, False
    for level, name in results.settings:
        reached = {}
        for m in (*OURS, *BASELINES):
            found = results.get(level, name, m, "normalised_value", sweep=True)
            full = [value for batch, value in found.items() if batch[2] == 1]
            reached[m] = float(np.mean(full)) if full else float("nan")
        missing |= bool(np.isnan(list(reached.values())).any())
        ours &= all(reached[m] >= CONVERGED for m in OURS)
        others &= all(reached[m] < CONVERGED for m in BASELINES)
        evidence.append(f"{_where(level, name)}: " + ", ".join(f"{m} {value:.3f}" for m, value in reached.items()))
    rule = (
        f"normalised value with every state visited: holds if at least {CONVERGED} for ITL and BITL and less for the "
    )
    rule += "others; partly if others get there too"
    verdict = UNJUDGED if missing else HOLDS if ours and others else PARTLY if ours else FAILS
    return Verdict("Only ITL and BITL converge to the optimum with coverage", rule, verdict, tuple(evidence))


def regret_predicts(results: Results) -> Verdict:
    """BITL's Bayesian regret foretells the value of its policy."""
    evidence, found, fewest = [], [], FEW_POINTS
    for level, name in results.settings:
        words = []
        for task, suffix in (("standard", ""), ("transfer", "_transfer")):
            regret = results.get(level, name, "BITL", "bayesian_regret" + suffix, sweep=True)
            value = results.get(level, name, "BITL", "normalised_value" + suffix, sweep=True)
            x, y = (np.array([cells[batch] for batch in regret]) for cells in (regret, value))
            fewest = min(fewest, len(x))
            inside = _within([batch[2] for batch in regret], x, y)
            found.append(correlation(x, y))
            words.append(f"{task} ρ = {found[-1]:.2f} ({inside:.2f} at equal coverage)")
        evidence.append(f"{_where(level, name)}: " + ", ".join(words))
    evidence.append(
        "ρ is Spearman's, over the batches of the coverage sweep; at equal coverage: the mean of ρ per coverage"
    )
    rule = f"holds if ρ <= {STRONG} everywhere, partly if it is negative everywhere"
    verdict = HOLDS if max(found) <= STRONG else PARTLY if max(found) < 0 else FAILS
    verdict = UNJUDGED if fewest < FEW_POINTS else verdict
    return Verdict("Bayesian regret predicts value", rule, verdict, tuple(evidence))


def transfer_regret_higher(results: Results) -> Verdict:
    """BITL's regret is higher for the transfer task than for the standard one."""
    evidence, raw, scaled = [], [], []
    for level, name in results.settings:
        standard = results.get(level, name, "BITL", "bayesian_regret")
        transfer = results.get(level, name, "BITL", "bayesian_regret_transfer")
        ranges = {world: _ranges(results.seed, level, world) for world, _, _ in standard}
        pairs = np.array([[standard[b], transfer[b]] for b in standard]).reshape(-1, 2)
        relative = pairs / np.array([ranges[b[0]] for b in standard]).reshape(-1, 2)
        raw.append(float((pairs[:, 1] > pairs[:, 0]).mean()))
        scaled.append(float((relative[:, 1] > relative[:, 0]).mean()))
        evidence.append(
            f"{_where(level, name)}: {pairs[:, 1].mean():.1f} against {pairs[:, 0].mean():.1f} (higher in "
            f"{100 * raw[-1]:.0f} % of the batches); as a share of the task's range of values "
            f"{relative[:, 1].mean():.2f} against {relative[:, 0].mean():.2f} ({100 * scaled[-1]:.0f} %)"
        )
    rule = (
        "regret of the rollout batches, in reward units: holds if higher in most batches everywhere, partly if in some "
    )
    rule += "levels and worlds. A task's range is from the random to the optimal policy"
    most = [share > 0.5 for share in raw]
    verdict = HOLDS if all(most) else PARTLY if any(most) else FAILS
    return Verdict("Transfer regret is higher than standard regret", rule, verdict, tuple(evidence))


def _within(groups: list[float], x: FloatArray, y: FloatArray) -> float:
    """Return the mean over groups of the rank correlation inside each."""
    label = np.array(groups)
    found = [correlation(x[label == g], y[label == g]) for g in sorted(set(groups))]
    known = [value for value in found if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _ranges(seed: int, level: str, world: str) -> tuple[float, float]:
    """Return the value of the optimal less that of the random policy, for both tasks of a world."""
    place, _ = world_of(Unit("synthetic", level, world, 0, ROLLOUT, "ITL", How(seed)))
    uniform = np.full(place.T.shape[:2], 1 / place.num_actions)
    found = [
        float(task.start @ plan(place.T, task).V - task.start @ evaluate(place.T, task, uniform))
        for task in (place.task, place.transfer or place.task)
    ]
    return found[0], found[1]


def _where(level: str, environment: str) -> str:
    return f"{ENVIRONMENTS[environment]}, {level} %"
