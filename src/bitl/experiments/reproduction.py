"""The page ``docs/reproduction.md``: every table and figure of a run, and a verdict on each claim of the paper."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from .. import _files
from .._version import __version__
from . import epsilon, sensitivity, synthetic
from .store import Row
from .tables import ResultTable, joint_tables, synthetic_tables
from .unit import How
from .verdicts import ENOUGH, Verdict, verdicts

FIGURES = {
    "coverage-stochastic40": "Normalised value against coverage and against Bayesian regret, 40 % stochastic states.",
    "coverage-stochastic20": "The same with 20 %.",
    "coverage-stochastic0": "The same with 0 %.",
    "gridworld-tasks": "The gridworld: rewards, optimal actions, and actions within epsilon, standard and transfer.",
    "feasible-region": "Slices of the feasible set of a toy problem; every witness is certified model by model.",
    "epsilon-tuning": "Held-out matching against epsilon, where the experts' epsilon is known to be 3.",
    "counterfactual-gridworld": "Next states after an action never taken, according to every method.",
}
OPEN_POINTS = """\
Total variation, which for MLE depends on the batches alone, agrees with the paper to a fraction of its standard
deviation: the batches are alike. What differs has causes that the text leaves open. Those that can be tried are tried
below, on rollout batches at epsilon = 3 (`bitl reproduce sensitivity`):

- *Ties.* In states without data MLE ties all actions. We count "no preference" (each of the tied actions in equal
  parts); an implementation that takes the first or last of them scores whatever the order of the actions makes of it.
- *The wall's place.* The figure is lost; the last column shows the least and largest mean over every wall of three
  tiles that agrees with the text's counts of stochastic-policy states.
- *The reference policy.* Under the paper's practical reference ITL still violates constraints of the definition, which
  is what we count; under its own reference it violates none. *Unsettled* is the share of batches on which the
  practical iteration cycles.
- *The reward scale of randomworlds* cannot be tried: with the text's rewards values lie in [0, 300], and the paper's
  CVaRs of -246 to -526 cannot come from them. Randomworld values are compared after normalisation only, and the
  differences in their CVaR rows mean nothing.
"""

Rows = Mapping[str, Sequence[Row]]  # by study


def write_page(path: Path, rows: Rows, out: Path, *, how: How, command: str, note: str = "") -> list[Path]:
    """Write the page, with copies of the figures in a folder of its name; return what was written."""
    written = [path]
    folder = path.with_suffix("")
    for name in FIGURES:
        source = out / "figures" / f"{name}.png"
        if source.is_file():
            with _files.replacing(folder / source.name) as temporary:
                shutil.copyfile(source, temporary)
            written.append(folder / source.name)
    _files.write_text(path, page(rows, [p.stem for p in written[1:]], folder.name, how=how, command=command, note=note))
    return written


def page(rows: Rows, figures: Sequence[str], folder: str, *, how: How, command: str, note: str = "") -> str:
    """Return the page's text; ``note`` is said first of all."""
    main = rows.get(synthetic.STUDY, ())
    parts = [
        "# The paper, reproduced\n",
        note,
        f"Written by `{command}`, bitl {__version__}, seed {how.seed}; do not edit by hand. Posteriors have "
        f"{how.draws} draws; BITL has four runs of {how.rounds} rounds. Every number is ours, the paper's stands "
        "in brackets where it has one, and the difference in units of the published standard deviation.\n",
        "## Verdicts\n",
        _verdicts(verdicts(main, how.seed)),
        "## Tables\n",
        *(_table(table) for table in synthetic_tables(main)),
        *(_table(table) for table in joint_tables(rows.get("joint", ()))),
        "## Figures\n",
        *(f"![{words}]({folder}/{name}.png)\n\n{words}\n" for name, words in FIGURES.items() if name in figures),
        _epsilon(rows.get(epsilon.STUDY, ())),
        "## Where we differ, and why\n",
        OPEN_POINTS,
        sensitivity.markdown(rows[sensitivity.STUDY]) if rows.get(sensitivity.STUDY) else "",
        "## How well the posteriors were sampled\n",
        _sampling(main),
        "## What it cost\n",
        _cost(main),
    ]
    return "\n".join(part for part in parts if part)


def _verdicts(found: Sequence[Verdict]) -> str:
    if not found:
        return f"Fewer than {ENOUGH} batches of all five methods, which is too few to judge the paper's claims.\n"
    lines = ["| the paper's claim | verdict |", "| --- | --- |"]
    lines += [f"| {v.claim} | **{v.verdict}** |" for v in found]
    for v in found:
        lines += ["", f"**{v.claim}**: {v.verdict}. Rule: {v.rule}.", ""]
        lines += [f"- {words}" for words in v.evidence]
    return "\n".join(lines) + "\n"


def _table(table: ResultTable) -> str:
    return f"### {table.title[0].upper()}{table.title[1:]}\n\n{table.markdown()}"


def _epsilon(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    words = ", ".join(f"{value:g} in {number}" for value, number in epsilon.recommendations(rows).items())
    return f"Epsilons recommended by held-out matching, the experts' own being 3: {words} batches.\n"


def _sampling(rows: Sequence[Row]) -> str:
    found: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _, level, world, _, _, method, metric, value in rows:
        if metric in ("rhat", "ess"):
            found[world.split("-")[0], level, method][metric].append(value)
    lines = ["| batches | median R-hat | 95 % of R-hats below | median ESS | share with ESS >= 100 |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for (world, level, method), cells in sorted(found.items()):
        rhat, ess = np.array(cells["rhat"]), np.array(cells["ess"])
        lines.append(
            f"| {method}, {world}, {level} % ({len(ess)}) | {np.nanmedian(rhat):.3f} | "
            f"{np.nanquantile(rhat, 0.95):.3f} | {np.nanmedian(ess):.0f} | {100 * np.mean(ess >= 100):.0f} % |"
        )
    text = "Worst state of V*, both kinds of batches. With four runs an effective sample size is itself uncertain by a "
    return text + "factor of two or so.\n\n" + "\n".join(lines) + "\n"


def _cost(rows: Sequence[Row]) -> str:
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _, _, world, _, _, method, metric, value in rows:
        if metric == "seconds":
            seconds[method, world.split("-")[0]].append(value)
    lines = ["| method, world | batches | mean seconds | hours in all |", "| --- | --- | --- | --- |"]
    for (method, world), found in sorted(seconds.items()):
        lines.append(f"| {method}, {world} | {len(found)} | {np.mean(found):.3f} | {np.sum(found) / 3600:.2f} |")
    total = sum(np.sum(found) for found in seconds.values()) / 3600
    lines.append("")
    lines.append(
        f"In all {total:.1f} hours of fitting on one core, measuring not included; N cores take an N-th of it."
    )
    return "\n".join(lines) + "\n"
