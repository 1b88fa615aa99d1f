"""Fit and sample: one method on one case, with a summary for people and machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..constraints import Certificate, certify
from ..errors import DataError
from ..estimate import Estimate
from ..methods import Problem, methods, run
from ..posterior.bitl import RUNS, sample_bitl
from ..posterior.dirichlet import sample_dirichlet
from ..posterior.posterior import Posterior
from .case import Case

ALIASES = {"joint": "ITL-No-R"}
SHOWN = 20


@dataclass(frozen=True, eq=False)
class Step:
    """What was learned and its summary."""

    learned: Estimate | Posterior
    summary: dict[str, Any]


def method_name(name: str) -> str:
    """Return the registered name of a method given as on the command line."""
    known = {key.lower(): key for key in methods()}
    found = ALIASES.get(name.lower(), known.get(name.lower()))
    if found is None:
        words = ", ".join([*known, *ALIASES])
        raise DataError(f"There is no method {name!r}; the methods are {words}.")
    return found


def fit(case: Case, method: str, *, seed: int) -> Step:
    """Fit one estimator to a case."""
    name = method_name(method)
    problem = Problem(case.counts, case.task, case.epsilon, case.expert, 1, seed, delta=case.settings.delta)
    if name in ("PS", "BITL"):
        raise DataError(f"{name} is a posterior: use bitl sample --method {name.lower()}.")
    done = run(name, problem)
    if not isinstance(done.learned, Estimate):
        raise DataError(f"{name} gives a posterior, not an estimate; it has no place in bitl fit.")
    model = done.learned
    certificate = model.certificate or certify(model.T, task=case.task, expert=case.expert, epsilon=case.epsilon)
    overruled = list(model.info.get("overruled", ()))
    info = {key: value for key, value in model.info.items() if isinstance(value, int | float | str)}
    summary = {
        "method": model.method,
        "seed": seed,
        "seconds": done.seconds,
        "loss": info.get("loss"),
        "certificate": certificate_summary(certificate),
        "overruled": overruled[:SHOWN],
        "overruled_share": sum(row["visits"] * row["moved"] for row in overruled) / float(case.counts.N.sum()),
        "info": info,
    }
    if "reward" in model.info:
        summary["reward"] = np.asarray(model.info["reward"]).tolist()
    return Step(model, summary)


def certificate_summary(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate for a JSON file: what holds, and where it does not."""
    leaves = [certificate.labels.state(int(s)) for s in np.flatnonzero(certificate.leaves_support)]
    return {
        "holds": certificate.holds,
        "violations": certificate.violations,
        "constraints": len(certificate.constraints),
        "worst": certificate.worst if certificate.violations else 0.0,
        "epsilon": certificate.epsilon,
        "where": certificate.table()[:SHOWN],
        "leaves_support": leaves,
        "words": str(certificate),
    }


def sample(
    case: Case,
    method: str,
    *,
    draws: int,
    seed: int,
    rounds: int | None = None,
    workers: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Step:
    """Draw from a posterior of a case; the runs are made equally long, as ArviZ wants its chains."""
    name = method_name(method)
    if draws > RUNS:
        draws = -(-draws // RUNS) * RUNS
    begin = time.perf_counter()
    delta = case.settings.delta
    if name == "BITL":
        post = sample_bitl(
            case.counts,
            task=case.task,
            epsilon=case.epsilon,
            draws=draws,
            seed=seed,
            expert=case.expert,
            delta=delta,
            rounds=rounds,
            workers=workers,
            progress=progress,
        )
    elif name == "PS":
        post = sample_dirichlet(case.counts, draws=draws, seed=seed, task=case.task, delta=delta, workers=workers)
    else:
        raise DataError(f"{name} is an estimate: use bitl fit --method {method}.")
    seconds = time.perf_counter() - begin
    return Step(post, {"method": name, "seed": seed, "seconds": seconds, **posterior_summary(post, case)})


def posterior_summary(post: Posterior, case: Case) -> dict[str, Any]:
    """Return how well the draws represent their posterior, what they violate, and the evidence."""
    found = post.diagnostics()
    broken = post.violations(expert=case.expert, epsilon=case.epsilon)
    known = ~np.isnan(found.rhat)  # infinite where runs stand still in different places: that counts
    regret = post.regret()
    summary = {
        "draws": len(post),
        "rhat": float(found.rhat[known].max()) if known.any() else None,
        "ess": float(np.nanmin(found.ess)) if np.isfinite(found.ess).any() else None,
        "warnings": list(found.warnings),
        "violations": float(broken.mean()),
        "draws_without_violation": int((broken == 0).sum()),
        "regret": {"value": regret.value, "standard_error": regret.standard_error},
    }
    for key in ("sampler", "rounds", "chains", "log_evidence", "log_evidence_se", "log_evidence_sd"):
        if key in post.info:
            summary[key] = post.info[key]
    return summary
