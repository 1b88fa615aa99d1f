"""What happens next after an action in a state, as each method has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..estimate import Estimate
from ..estimators.mle import fit_mle
from ..posterior.dirichlet import sample_dirichlet
from ..posterior.posterior import Posterior
from ..report.next_states import NextStates, next_states
from .case import Case

PS_DRAWS, PS_ENTRIES = 1000, 60_000_000  # half a gigabyte of draws at most
FEW = 100


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The answer to one question."""

    answer: NextStates
    seen: int  #: how often the action was taken in the state
    visits: int  #: how often the state was visited

    @property
    def note(self) -> str:
        """How often this was seen."""
        times = {0: "never seen", 1: "seen once"}.get(self.seen, f"seen {self.seen} times")
        return f"{times} in {self.visits} visits to this state"

    @property
    def words(self) -> str:
        """The answer in two sentences."""
        method = self.answer.predictions[-1]
        text = f"After “{self.answer.action}” in “{self.answer.state}” ({self.note}) {method.method} expects "
        if method.uniform:
            return text + "every state alike: it knows nothing here."
        parts = []
        for k, name in enumerate(self.answer.names[: min(3, len(self.answer.states))]):
            part = f"{name} with probability {method.probability[k]:.2f}"
            if method.low is not None and method.high is not None:
                part += f" ({method.low[k]:.2f} to {method.high[k]:.2f})"
            parts.append(part)
        return text + ", ".join(parts) + "."

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for a JSON file."""
        return {
            "state": self.answer.state,
            "action": self.answer.action,
            "seen": self.seen,
            "visits": self.visits,
            "credible_mass": self.answer.mass,
            "words": self.words,
            "next_states": self.answer.rows(),
        }


def comparison(case: Case, estimate: Estimate | None, posterior: Posterior | None, *, seed: int) -> dict[str, Any]:
    """Return the methods to ask: data alone (MLE, PS), then what was fitted and sampled."""
    delta = case.settings.delta
    learned: dict[str, Any] = {"MLE": fit_mle(case.counts, delta=delta)}
    draws = min(PS_DRAWS, PS_ENTRIES // case.counts.N.size)
    if draws >= FEW:
        learned["PS"] = sample_dirichlet(case.counts, draws=draws, seed=seed, delta=delta)
    for one in (estimate, posterior):
        if one is not None:
            learned[one.method] = one
    return learned


def whatif(
    case: Case, learned: dict[str, Any], *, state: int | str, action: int | str, top: int = 5, mass: float = 0.9
) -> WhatIf:
    """Ask every method where an action leads from a state."""
    answer = next_states(learned, state=state, action=action, top=top, mass=mass, labels=case.labels)
    s, a = case.labels.state_id(state), case.labels.action_id(action)
    visits = case.counts.visits[s]
    return WhatIf(answer, int(visits[a]), int(visits.sum()))
