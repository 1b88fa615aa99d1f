"""Tables: ours beside the published numbers, as text for people (rich, Markdown, LaTeX) and for machines (CSV).

A table's bytes depend on the results alone, so two runs that computed the same units write the same files. Seconds
differ from run to run and have a table of their own.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..metrics import cvar
from .published import published_numbers
from .store import Row
from .unit import ROLLOUT

METHODS = ("MCE", "BITL", "ITL", "MLE", "PS")  # the paper's order; others follow
# label, our metric, the published table's metric and task
SYNTHETIC = (
    ("epsilon matching", "epsilon_matching", "epsilon_matching", "standard"),
    ("epsilon matching, transfer", "epsilon_matching_transfer", "epsilon_matching", "transfer"),
    ("best matching", "best_matching", "best_matching", "standard"),
    ("best matching, transfer", "best_matching_transfer", "best_matching", "transfer"),
    ("total variation", "total_variation", "total_variation", "standard"),
    ("value CVaR 1 %", "value:0.01", "value_cvar_1pct", "standard"),
    ("value CVaR 2 %", "value:0.02", "value_cvar_2pct", "standard"),
    ("value CVaR 5 %", "value:0.05", "value_cvar_5pct", "standard"),
    ("constraints violated", "violations", "constraints_violated", "standard"),
    ("normalised value", "normalised_value", None, None),
    ("normalised value, transfer", "normalised_value_transfer", None, None),
    ("violated, expert reference", "violations_expert", None, None),
    ("leaves the experts' support", "leaves_support", None, None),
    ("Bayesian regret", "bayesian_regret", None, None),
    ("Bayesian regret, transfer", "bayesian_regret_transfer", None, None),
    ("largest R-hat of V*", "rhat", None, None),
    ("least effective draws of V*", "ess", None, None),
)
JOINT = (
    ("value", "value", "value", "standard"),
    ("best matching", "best_matching", "best_matching", "standard"),
    ("epsilon matching", "epsilon_matching", "epsilon_matching", "standard"),
    ("total variation", "total_variation", "total_variation", "standard"),
    ("value, transfer", "value_transfer", "value", "transfer"),
    ("best matching, transfer", "best_matching_transfer", "best_matching", "transfer"),
    ("epsilon matching, transfer", "epsilon_matching_transfer", "epsilon_matching", "transfer"),
)
Found = dict[tuple[str, str], list[float]]  # (method, metric) -> values over datasets
TIMING = (("seconds", "seconds", "time_s", "standard"),)


@dataclass(frozen=True)
class Cell:
    """One number: ours, and the published one where there is one."""

    mean: float
    sd: float | None  #: None where there is a single dataset
    published_mean: float | None = None
    published_sd: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours less the published, in units of the published standard deviation."""
        if self.published_mean is None or not self.published_sd:
            return None
        return (self.mean - self.published_mean) / self.published_sd

    def __str__(self) -> str:
        text = f"{self.mean:.2f}" if self.sd is None else f"{self.mean:.2f} ± {self.sd:.2f}"
        if self.published_mean is not None:
            spread = "" if self.published_sd is None else f" ± {self.published_sd:g}"
            text += f" (paper {self.published_mean:g}{spread}"
            text += ")" if self.difference is None else f", {self.difference:+.1f} sd)"
        return text


@dataclass(frozen=True)
class ResultTable:
    """A table of methods by metrics."""

    name: str
    title: str
    methods: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = ["| " + " | ".join(["", *self.methods]) + " |", "| --- " * (len(self.methods) + 1) + "|"]
        lines += [f"| {label} | " + " | ".join(_text(cell) for cell in cells) + " |" for label, cells in self.rows]
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """Return the table as LaTeX (booktabs)."""
        head = " & ".join(["", *self.methods]) + r" \\ \midrule"
        body = [
            label.replace("%", r"\%") + " & " + " & ".join(_latex(cell) for cell in cells) + r" \\"
            for label, cells in self.rows
        ]
        columns = "l" + "r" * len(self.methods)
        return "\n".join(
            [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, *body, r"\bottomrule", r"\end{tabular}", ""]
        )

    def csv(self) -> str:
        """Return one line per cell."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["metric", "method", "mean", "sd", "published_mean", "published_sd", "difference_in_sd"])
        for label, cells in self.rows:
            for method, cell in zip(self.methods, cells, strict=True):
                if cell is not None:
                    numbers = (cell.mean, cell.sd, cell.published_mean, cell.published_sd, cell.difference)
                    writer.writerow([label, method, *("" if x is None else f"{x:.10g}" for x in numbers)])
        return out.getvalue()

    def rich(self) -> Any:
        """Return the table for a terminal."""
        from rich.table import Table

        table = Table(
            title=self.title, title_justify="left", caption="below ours: the paper's, and the difference in its sd"
        )
        table.caption_justify = "left"
        table.add_column("")
        for method in self.methods:
            table.add_column(method, justify="right")
        for label, cells in self.rows:
            # ours above, the paper's below: side by side they are too wide for most terminals
            table.add_row(label, *(_text(cell).replace(" (", "\n(", 1).replace("paper ", "") for cell in cells))
        return table


def synthetic_tables(rows: Iterable[Row], entries: tuple[Any, ...] = SYNTHETIC) -> list[ResultTable]:
    """Return one table per level and environment, from the rollout batches."""
    values: dict[tuple[str, str], Found] = defaultdict(lambda: defaultdict(list))
    for _, level, world, _, coverage, method, metric, value in rows:
        if coverage == ROLLOUT:
            values[level, world.split("-")[0]][method, metric].append(value)
    tables = []
    for (level, environment), found in sorted(values.items(), key=lambda item: (-int(item[0][0]), item[0][1])):
        plural = {"randomworld": "randomworlds"}.get(environment, environment)
        title = f"{environment}, {level} % stochastic-policy states"
        tables.append(_table(f"stochastic{level}-{environment}", title, found, entries, (f"stochastic{level}", plural)))
    return tables


def joint_tables(rows: Iterable[Row], entries: tuple[Any, ...] = JOINT) -> list[ResultTable]:
    """Return the table of ITL with and without the reward."""
    found: Found = defaultdict(list)
    for _, _, _, _, _, method, metric, value in rows:
        found[method, metric].append(value)
    title = "ITL with the reward, without it, and told the prior instead (gridworld, epsilon 3)"
    return [_table("joint-reward", title, found, entries, ("joint_reward", "gridworld"))] if found else []


def _table(name: str, title: str, found: Found, entries: tuple[Any, ...], published: tuple[str, str]) -> ResultTable:
    present = {method for method, _ in found}
    methods = tuple(m for m in METHODS if m in present) + tuple(sorted(present - set(METHODS)))
    counts = {name: max(len(v) for (method, _), v in found.items() if method == name) for name in methods}
    number = max(counts.values())
    words = f"{number} batches" + "".join(f", {name} on {n} of them" for name, n in counts.items() if n < number)
    body = []
    for label, metric, theirs, task in entries:
        cells = tuple(_cell(found, method, metric, (*published, task, theirs, method)) for method in methods)
        if any(cell is not None for cell in cells):
            body.append((label, cells))
    return ResultTable(name, f"{title}, {words} (mean ± sd)", methods, tuple(body))


def _cell(found: Found, method: str, metric: str, published: tuple[str | None, ...]) -> Cell | None:
    name, _, share = metric.partition(":")
    values = [v for v in found.get((method, name), []) if np.isfinite(v)]
    if not values:
        return None
    mean, sd = cvar(values, float(share)) if share else (float(np.mean(values)), float(np.std(values)))
    return Cell(mean, sd, *published_numbers().get(published, (None, None)))


def _text(cell: Cell | None) -> str:
    return "–" if cell is None else str(cell)


def _latex(cell: Cell | None) -> str:
    if cell is None:
        return "--"
    published = "" if cell.published_mean is None else f" ({cell.published_mean:g})"
    spread = "" if cell.sd is None else rf" \pm {cell.sd:.2f}"
    return f"${cell.mean:.2f}{spread}${published}"
