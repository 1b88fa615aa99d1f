"""The report on one's own data: one HTML file that opens offline and prints well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..estimate import Estimate
from ..posterior.posterior import Posterior
from ..report.next_states import draw_next_states
from ..report.page import embed_figure, write_page
from . import figures
from .case import Case
from .checks import SIGNS, WORDS, certificate_words, checks, worst
from .folder import Folder
from .transfer import Prediction, Transfer, transfer
from .whatif import comparison, whatif

UNSURE = 10
PANELS = 4


def write_report(folder: Folder, target: Path, *, seed: int, notes: list[str], command: str) -> None:
    """Write the report of a folder."""
    case = folder.case()
    estimate, posterior = folder.estimate(), folder.posterior(case)
    found = checks(case, folder.summary.get("fit"), folder.summary.get("sample"))
    main = posterior if posterior is not None else estimate
    answers = transfers(folder, case, main)
    write_page(
        target,
        "case.html",
        title=f"What {case.about['source']} says about how the world responds",
        case=case,
        about=case.about,
        settings=folder.summary["settings"],
        versions=folder.summary["versions"],
        fit=folder.summary.get("fit"),
        sample=folder.summary.get("sample"),
        certificate=certificate_words(folder.summary["fit"]["certificate"]) if estimate else None,
        checks=found,
        overall={"level": worst(found), "sign": SIGNS[worst(found)], "word": WORDS[worst(found)]},
        notes=notes,
        coverage=embed_figure(figures.draw_coverage(case)),
        few=case.counts.num_states > figures.MOST,
        shown=figures.MOST,
        policy=None if main is None else embed_figure(figures.draw_policy(case, main)),
        policy_words=None if main is None else policy_words(case, main),
        unsure=None if posterior is None else unsure(case, posterior),
        uncertainty=None
        if posterior is None
        else embed_figure(figures.draw_uncertainty(case, posterior, unsure_states(posterior))),
        transfers=answers,
        transfer_figure=embed_figure(figures.draw_transfer(answers)) if any(a.new for a in answers) else None,
        panels=panels(folder, case, estimate, posterior, seed),
        commands=[*folder.summary["commands"], command],
    )


def policy_words(case: Case, learned: Estimate | Posterior) -> str:
    """Say where the learned policy leaves what the experts do."""
    from ..metrics import learned_policy

    policy = learned_policy(learned, case.task)
    visited = case.expert.visited
    inside = (policy * case.expert.valid).sum(axis=1) > 1 - 1e-9
    number, total = int((inside & visited).sum()), int(visited.sum())
    text = f"In {number} of {total} states in which experts were seen, the model would do what they do"
    if number == total:
        return text + "."
    names = [case.labels.state(int(s)) for s in np.flatnonzero(visited & ~inside)]
    return text + f"; not in {', '.join(f'“{name}”' for name in names[:5])}{' and others' if len(names) > 5 else ''}."


def unsure_states(posterior: Posterior) -> Any:
    """Return the states whose best action is least certain, the least certain first."""
    sure = posterior.policy().max(axis=1)
    low, high = posterior.credible_interval("V", mass=0.9)
    return np.lexsort((-(high - low), sure))[:UNSURE]


def unsure(case: Case, posterior: Posterior) -> list[dict[str, Any]]:
    """Return the table of the least certain states."""
    policy = posterior.policy()
    low, high = posterior.credible_interval("V", mass=0.9)
    visits = case.counts.visits
    rows = []
    for s in unsure_states(posterior):
        order = np.argsort(-policy[s], kind="stable")
        rows.append(
            {
                "state": case.labels.state(int(s)),
                "visits": int(visits[s].sum()),
                "best": case.labels.action(int(order[0])),
                "sure": float(policy[s, order[0]]),
                "second": case.labels.action(int(order[1])) if len(order) > 1 and policy[s, order[1]] > 0 else "–",
                "low": float(low[s]),
                "high": float(high[s]),
            }
        )
    return rows


def transfers(folder: Folder, case: Case, learned: Estimate | Posterior | None) -> list[Transfer]:
    """Return the recorded answers about new goals; those given before the latest draws are given anew."""
    found = []
    for entry in folder.summary.get("transfer", {}).values():
        if learned is not None and "reward" in entry and entry["learned"] != folder.learned_by():
            goal, sample = case.task.with_reward(entry["reward"]), folder.summary.get("sample")
            found.append(transfer(case, learned, goal, name=entry["name"], sample=sample))
            continue
        new, train = (Prediction(**entry[key]) if entry[key] else None for key in ("regret", "regret_training"))
        found.append(
            Transfer(entry["name"], entry["verdict"], entry["basis"], train, new, entry["policy"], entry["words"])
        )
    return found


def panels(
    folder: Folder, case: Case, estimate: Estimate | None, posterior: Posterior | None, seed: int
) -> list[dict[str, Any]]:
    """Answer what was asked with bitl whatif, then questions that suggest themselves."""
    learned = comparison(case, estimate, posterior, seed=seed)
    asked = [(entry["state"], entry["action"]) for entry in folder.summary.get("whatif", {}).values()]
    found = []
    more = [pair for pair in questions(case, folder.summary.get("fit")) if pair not in asked]
    for state, action in [*asked, *more[: max(0, PANELS - len(asked))]]:
        answer = whatif(case, learned, state=state, action=action)
        found.append({"figure": embed_figure(draw_next_states(answer.answer, note=answer.note)), "words": answer.words})
    return found


def questions(case: Case, fit: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return pairs of state and action worth looking at.

    The most frequent decision, the outcome that was overruled most, and an action the experts never took in the
    state they saw most and in the one they saw least.
    """
    visits = case.counts.visits
    labels = case.labels
    s, a = np.unravel_index(int(visits.argmax()), visits.shape)
    pairs = [(labels.state(int(s)), labels.action(int(a)))]
    if fit and fit.get("overruled"):
        pairs.append((fit["overruled"][0]["state"], fit["overruled"][0]["action"]))
    total = np.where(visits.sum(axis=1) > 0, visits.sum(axis=1), np.nan)
    for order in (np.argsort(-total, kind="stable"), np.argsort(total, kind="stable")):
        for state in order:
            never = np.flatnonzero(visits[state] == 0)
            if total[state] > 0 and never.size:
                pairs.append((labels.state(int(state)), labels.action(int(never[0]))))
                break
    return list(dict.fromkeys(pairs))[:PANELS]
