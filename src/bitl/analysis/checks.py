"""Diagnostics as a traffic light: a sign, a word and a sentence for each, so that no one needs the colour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..posterior.diagnostics import ESS_LIMIT, RHAT_LIMIT
from .case import Case
from .transfer import RHAT

OK, LOOK, STOP, OPEN = "ok", "look", "stop", "open"
SIGNS = {OK: "✔", LOOK: "▲", STOP: "✖", OPEN: "–"}
WORDS = {OK: "fine", LOOK: "look", STOP: "stop", OPEN: "not done"}
FEW_DRAWS, FEW_VISITS = 100, 5
MOVED_LOOK, MOVED_STOP = 0.05, 0.2


@dataclass(frozen=True)
class Check:
    """One light."""

    level: str
    title: str
    words: str

    @property
    def sign(self) -> str:
        """A sign that differs in shape."""
        return SIGNS[self.level]

    @property
    def word(self) -> str:
        """The level as a word."""
        return WORDS[self.level]


def checks(case: Case, fit: dict[str, Any] | None, sample: dict[str, Any] | None) -> list[Check]:
    """Return every light for a case and what was done with it."""
    return [*_data(case), *_fit(fit), *_sample(sample)]


def _data(case: Case) -> list[Check]:
    visits = case.counts.visits
    S = len(visits)
    unseen = int((visits.sum(axis=1) == 0).sum())
    words = "Every state has recorded decisions." if not unseen else (
        f"In {unseen} of {S} states no decision was recorded: there the data say nothing, and only the experts' "
        "competence elsewhere does."
    )  # fmt: skip
    thin = int(((visits < FEW_VISITS) & case.expert.valid).sum())
    found = [Check(OK if not unseen else LOOK if unseen <= S / 2 else STOP, "Coverage", words)]
    text = f"{thin} of {int(case.expert.valid.sum())} experts' choices rest on fewer than {FEW_VISITS} decisions"
    text += "; a slip of the pen counts as a choice there." if thin else "."
    found.append(Check(LOOK if thin else OK, "Thin evidence", text))
    dropped = sum(entry["number"] for entry in case.about.get("refused", ()))
    if dropped:
        found.append(Check(LOOK, "Rows left out", f"{dropped} rows of the table could not be used and were left out."))
    return found


def _fit(fit: dict[str, Any] | None) -> list[Check]:
    if fit is None:
        return [Check(OPEN, "Certificate", "No estimate was made; run bitl fit.")]
    c = fit["certificate"]
    found = [Check(OK if c["holds"] else STOP, "Certificate", certificate_words(c))]
    if fit["method"] == "ITL":
        share = fit["overruled_share"]
        level = OK if share <= MOVED_LOOK else LOOK if share <= MOVED_STOP else STOP
        text = f"To make sense of the experts, {100 * share:.1f} % of the recorded outcomes had to be overruled."
        if level != OK:
            text += " Much overruling says that epsilon or the reward may not be the experts' own."
        found.append(Check(level, "Data against experts", text))
    return found


def certificate_words(c: dict[str, Any]) -> str:
    """Say what a certificate means to someone who has not read the method."""
    if c["holds"]:
        return (
            f"In the learned model every recorded choice of the experts is within {c['epsilon']:g} of the best, and "
            f"every choice they avoided is at least {c['epsilon']:g} worse: all {c['constraints']} such statements "
            "were checked by planning anew in the model."
        )
    row = c["where"][0]
    text = (
        f"{c['violations']} of {c['constraints']} statements about the experts do not hold in the learned model; the "
        f"worst is in “{row['state']}”, where “{row['action']}” should "
    )
    text += "be nearly as good as" if row["kind"] == "closeness" else "be clearly better than"
    return text + f" “{row['other']}” and misses that by {row['excess']:.3g}."


def _sample(sample: dict[str, Any] | None) -> list[Check]:
    if sample is None:
        return [
            Check(
                OPEN,
                "Uncertainty",
                "No posterior was drawn, so this report cannot say how sure it is; run bitl sample.",
            )
        ]
    rhat, ess = sample.get("rhat"), sample.get("ess")
    found = []
    if rhat is None:
        found.append(
            Check(STOP, "Agreement of runs", "The independent runs cannot be compared: nothing moves in them.")
        )
    else:
        level = OK if rhat <= RHAT_LIMIT else LOOK if rhat <= RHAT else STOP
        text = f"The independent runs of the sampler {'agree' if level == OK else 'do not fully agree'}"
        text += f" (R-hat {rhat:.3f}; {RHAT_LIMIT} or less is good)."
        found.append(Check(level, "Agreement of runs", text))
    number = 0.0 if ess is None else ess
    level = OK if number >= ESS_LIMIT else LOOK if number >= FEW_DRAWS else STOP
    text = f"The draws are worth {number:.0f} independent ones for the least certain state"
    text += f" ({ESS_LIMIT:.0f} or more is good)."
    found.append(Check(level, "Effective draws", text))
    bad = sample["draws"] - sample["draws_without_violation"]
    if sample["method"] == "PS":
        text = "PS does not know of the experts: its draws are the data alone."
        found.append(Check(LOOK, "Draws and experts", text))
    else:
        text = f"{sample['draws_without_violation']} of {sample['draws']} draws pass their certificate."
        found.append(Check(STOP if bad else OK, "Draws and experts", text))
    remedies = [str(w) for w in sample.get("warnings", ())]
    if remedies and any(c.level != OK for c in found):
        found.append(Check(LOOK, "What to do", "Draw again with more rounds: " + " ".join(remedies)))
    return found


def worst(found: list[Check]) -> str:
    """Return the most serious level."""
    order = [OK, OPEN, LOOK, STOP]
    return order[int(np.max([order.index(check.level) for check in found]))]
