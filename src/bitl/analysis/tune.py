"""Choosing epsilon for a case: by held-out matching, as the paper does, and by the evidence of the posterior."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..errors import BitlError, DataError
from ..estimators.mle import fit_mle
from ..planning import plan
from ..posterior.bitl import sample_bitl
from ..task import Task
from ..tuning import EpsilonTuning, tune_epsilon
from .case import Case, expert_rule

GRID = 8
DRAWS = 40  # the evidence comes from the rounds; the draws are not used


@dataclass(frozen=True, eq=False)
class Tuning:
    """What was found for every epsilon."""

    epsilons: FloatArray
    folds: int
    by: str  #: what the folds keep whole: "episode" or "transition"
    matching: EpsilonTuning
    evidence: list[dict[str, Any]]  #: epsilon, log_evidence, error, reason; empty if not asked for

    @property
    def by_matching(self) -> float | None:
        """The epsilon of the best held-out matching, None if no epsilon has a model in every fold."""
        try:
            return self.matching.recommended
        except DataError:
            return None

    @property
    def by_evidence(self) -> float | None:
        """The epsilon of the largest evidence."""
        known = [row for row in self.evidence if row["log_evidence"] is not None]
        return max(known, key=lambda row: row["log_evidence"])["epsilon"] if known else None

    def as_good(self) -> list[float]:
        """Return the other epsilons whose score is within one standard error (over folds) of the best."""
        scores = [*self.matching.best_matching.values(), *self.matching.epsilon_matching.values()]
        by_fold = np.mean(scores, axis=0)  # [epsilon, fold]
        mean = by_fold.mean(axis=1)
        top = int(np.flatnonzero(self.epsilons == self.by_matching)[0])
        with np.errstate(invalid="ignore"):
            gap = by_fold[top] - by_fold  # paired: the same folds are held out for every epsilon
            error = gap.std(axis=1, ddof=1) / np.sqrt(self.folds)
            alike = mean >= mean[top] - error - 1e-12
        return [float(e) for e in self.epsilons[alike] if e != self.by_matching]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per epsilon for a table."""
        rows = self.matching.table()
        for i, row in enumerate(rows):
            if self.evidence:
                row["log_evidence"] = self.evidence[i]["log_evidence"]
                row["log_evidence_se"] = self.evidence[i]["error"]
            row["refused"] = self.matching.refusals.get(row["epsilon"], "") or (
                self.evidence[i]["reason"] if self.evidence else ""
            )
        return rows

    @property
    def words(self) -> str:
        """The recommendation in words."""
        if self.by_matching is None:
            text = "No epsilon has a model in every fold, so held-out matching recommends none"
            text += f" ({next(iter(self.matching.refusals.values()), '')})."
        else:
            text = f"Held-out matching ({self.folds} folds by {self.by}) is best at epsilon {self.by_matching:g}"
            alike = self.as_good()
            text += (
                f", but {', '.join(f'{e:g}' for e in alike)} do as well within one standard error." if alike else "."
            )
        if self.by_evidence is not None:
            row = next(row for row in self.evidence if row["epsilon"] == self.by_evidence)
            text += f" The evidence is largest at epsilon {self.by_evidence:g} (log evidence {row['log_evidence']:.1f}"
            text += "" if row["error"] is None else f" ± {row['error']:.1f}"
            text += ")."
        return text

    def as_dict(self) -> dict[str, Any]:
        """Return the result for a JSON file."""
        return {
            "by_matching": self.by_matching,
            "by_evidence": self.by_evidence,
            "folds": self.folds,
            "folds_by": self.by,
            "words": self.words,
            "table": self.rows(),
        }


def default_epsilons(case: Case) -> list[float]:
    """Return eight values from 2 % to 100 % of the largest difference between two actions under T_MLE."""
    Q = plan(fit_mle(case.counts, delta=case.settings.delta).T, case.task).Q
    finite = np.where(np.isfinite(Q), Q, np.nan)
    spread = float(np.nanmax(np.nanmax(finite, axis=1) - np.nanmin(finite, axis=1)))
    if spread <= 0:
        raise DataError("All actions have the same value in the data, so no epsilon suggests itself; give --epsilon.")
    return [float(f"{x:.2g}") for x in spread * np.geomspace(0.02, 1.0, GRID)]


def tune(
    case: Case,
    epsilons: Sequence[float],
    *,
    folds: int,
    seed: int,
    transfer: Mapping[str, Task] | None = None,
    rounds: int | None = None,
    workers: int | None = None,
    on_epsilon: Callable[[int], None] = lambda _: None,
) -> Tuning:
    """Try every epsilon; with ``rounds`` the evidence is estimated as well."""
    if case.batch is None:
        raise DataError("Tuning needs the table itself, not its counts alone.")
    values = sorted({_validate.real(e, "epsilon", low=0, ends="[)") for e in epsilons})
    by = "episode" if case.batch.episode is not None else "transition"
    matching = tune_epsilon(
        case.batch,
        task=case.task,
        epsilons=values,
        seed=seed,
        transfer=transfer,
        folds=folds,
        by=by,
        rule=lambda counts: expert_rule(counts, case.settings),
        delta=case.settings.delta,
    )
    evidence = []
    for number, epsilon in enumerate(values if rounds is not None else []):
        evidence.append(_evidence(case, epsilon, seed, rounds or 1, workers))
        on_epsilon(number + 1)
    return Tuning(np.array(values), folds, by, matching, evidence)


def _evidence(case: Case, epsilon: float, seed: int, rounds: int, workers: int | None) -> dict[str, Any]:
    row: dict[str, Any] = {"epsilon": epsilon, "log_evidence": None, "error": None, "reason": ""}
    try:
        post = sample_bitl(
            case.counts,
            task=case.task,
            epsilon=epsilon,
            draws=DRAWS,
            seed=seed,
            expert=case.expert,
            delta=case.settings.delta,
            rounds=rounds,
            workers=workers,
        )
    except BitlError as error:
        return {**row, "reason": str(error)}
    error_of = float(post.info["log_evidence_se"])
    return {
        **row,
        "log_evidence": float(post.info["log_evidence"]),
        "error": error_of if np.isfinite(error_of) else None,
    }
