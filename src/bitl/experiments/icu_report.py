"""What the ICU study writes: tables beside the published ones, tuning, counterfactual figures, a page to read.

No row of a patient is written here, and counts of 1 to 9 are shown as "<10" unless asked otherwise.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from .. import _files
from ..icu.audit import Audit, Count, batch_sections, leak_warnings
from ..posterior.posterior import Posterior
from ..report import curves, style
from ..report.next_states import draw_next_states
from .icu import Study, recommended, warnings_of
from .published import published_numbers
from .tables import Cell, ResultTable

# label, our metric, the published metric and task
ROWS = (
    ("best matching", "best_matching", "best_matching", "standard"),
    ("epsilon matching", "epsilon_matching", "epsilon_matching", "standard"),
    ("best matching, transfer", "best_matching_transfer", "best_matching", "transfer"),
    ("epsilon matching, transfer", "epsilon_matching_transfer", "epsilon_matching", "transfer"),
    ("constraints violated", "violations", "constraints_violated", "standard"),
    ("Bayesian regret", "bayesian_regret", "bayesian_regret", "standard"),
    ("Bayesian regret, transfer", "bayesian_regret_transfer", "bayesian_regret", "transfer"),
    ("seconds", "seconds", "time_s", "standard"),
    ("best matching, patients learned from", "best_matching_seen", None, None),
    ("in the clinicians' support, patients learned from", "epsilon_matching_seen", None, None),
    ("in support, transfer, patients learned from", "epsilon_matching_seen_transfer", None, None),
    ("largest R-hat of V*", "rhat", None, None),
    ("least effective draws of V*", "ess", None, None),
)


def tables(study: Study) -> list[ResultTable]:
    """Return one table per epsilon."""
    made = []
    for epsilon in study.settings.epsilons:
        rows = []
        for label, metric, published, task in ROWS:
            cells = tuple(_cell(study, epsilon, name, metric, published, task) for name in study.settings.methods)
            if any(cell is not None for cell in cells):
                rows.append((label, cells))
        title = f"ICU, epsilon {epsilon:g}: {study.num_constraints} constraints, {_who(study)}"
        made.append(ResultTable(f"icu-epsilon{epsilon:g}", title, study.settings.methods, tuple(rows)))
    return made


def _who(study: Study) -> str:
    if study.settings.validation == 0:
        return "matching judged on the data that was learned from"
    return f"matching judged on {100 * study.settings.validation:g} % of the patients, held out"


def _cell(study: Study, epsilon: float, name: str, metric: str, published: str | None, task: str | None) -> Cell | None:
    value = study.scores.get((epsilon, name), {}).get(metric)
    if value is None:
        return None
    theirs = published_numbers().get((f"icu_epsilon{epsilon:g}", "icu", task, published, name), (None, None))
    return Cell(value, None, *theirs)


def audit(study: Study) -> Audit:
    """Return what the batch covers."""
    whole = study.batch.transitions
    sections = batch_sections(whole, study.task, share=study.settings.share)
    return Audit(sections, tuple(leak_warnings(whole, study.batch.scheme)))


def draw_tuning(study: Study) -> Any:
    """Draw held-out matching against epsilon, for both tasks."""
    tuning = study.tuning
    assert tuning is not None  # noqa: S101  # the caller looked
    scores = {
        f"{kind} matching, {name} task": values
        for kind, found in (("epsilon", tuning.epsilon_matching), ("best", tuning.best_matching))
        for name, values in found.items()
    }
    return curves.draw_tuning(f"ITL on held-out patients, {study.settings.folds} folds", tuning.epsilons, scores, None)


def tuning_csv(study: Study) -> str:
    """Return the tuning as CSV, one line per epsilon."""
    assert study.tuning is not None  # noqa: S101
    rows = study.tuning.table()
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def note(study: Study, state: int, action: int, *, protect: bool) -> str:
    """Say how often the action of a question was seen."""
    times = Count(int(study.train.counts.visits[state, action])).shown(protect)
    where = "here in the data" if study.settings.validation == 0 else "here in the patients learned from"
    seen = f"never seen {where}" if times == 0 else f"seen {times} times {where}"
    return f"{seen}; epsilon = {study.settings.epsilons[0]:g}"


def certificates(study: Study) -> list[str]:
    """Say for each method and epsilon which constraints hold."""
    lines = []
    for (epsilon, name), fit in study.fits.items():
        learned = fit.learned
        if isinstance(learned, Posterior):
            broken = learned.violations(expert=study.expert, epsilon=epsilon)
            text = f"{int((broken == 0).sum())} of {len(learned)} draws satisfy every constraint"
            text += f"; {broken.mean():.1f} of {study.num_constraints} are violated on average."
        else:
            number = int(study.scores[epsilon, name]["violations"])
            text = f"{number} of {study.num_constraints} constraints are violated."
        support = study.scores[epsilon, name]["epsilon_matching_seen"]
        text += f" Its policy is within the clinicians' valid actions in {100 * support:.0f} % of the visited states."
        lines.append(f"{name}, epsilon {epsilon:g}: {text}")
    return lines


def summary(study: Study, *, protect: bool) -> str:
    """Say in two sentences what was done."""
    patients = Count(len(np.unique(study.batch.patient))).shown(protect)
    stays = Count(len(np.unique(study.batch.stay))).shown(protect)
    held = Count(len(set() if study.held.episode is None else np.unique(study.held.episode))).shown(protect)
    text = f"{len(study.batch.state):,} transitions of {stays} stays of {patients} patients"
    if study.settings.validation:
        text += f", {held} of them held out"
    return (
        f"{text}. Clinicians were seen in {int(study.expert.visited.sum())} of {study.batch.scheme.num_states} states, "
        f"with {int(study.expert.valid.sum())} valid actions (taken in at least {100 * study.settings.share:g} % of "
        f"the visits) and so {study.num_constraints} constraints."
    )


def write(study: Study, out: Path, *, protect: bool = True) -> list[Path]:
    """Write tables, tuning, figures and ``report.md``; return what was written."""
    written: list[Path] = []
    made = tables(study)
    for table in made:
        for suffix, text in ((".md", table.markdown()), (".csv", table.csv()), (".tex", table.latex())):
            written.append(out / "tables" / f"{table.name}{suffix}")
            _files.write_text(written[-1], text)
    lines = ["# The hypotension study", "", summary(study, protect=protect), "", recommended(study), ""]
    lines += [f"- **Warning.** {words}" for words in warnings_of(study)] + [""]
    for table in made:
        lines += [f"## {table.title}", "", table.markdown()]
    lines += ["## What holds", "", *(f"- {line}" for line in certificates(study)), ""]
    if study.tuning is not None:
        _files.write_text(out / "tuning.csv", tuning_csv(study))
        written += [out / "tuning.csv", *style.save(draw_tuning(study), out / "tuning")]
        lines += ["## Epsilon", "", "![held-out matching against epsilon](tuning.png)", ""]
    for i, (answer, (s, a)) in enumerate(zip(study.questions, study.asked, strict=False)):
        figure = draw_next_states(answer, note=note(study, s, a, protect=protect))
        written += style.save(figure, out / f"what-if-{i + 1}")
        lines += [f"## What if “{answer.action}” in: {answer.state}?", "", f"![next states](what-if-{i + 1}.png)", ""]
    found = audit(study)
    lines += [found.markdown(protect=protect)]
    _files.write_text(out / "report.md", "\n".join(lines))
    return [*written, out / "report.md"]
