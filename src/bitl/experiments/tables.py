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
from .synthetic import ROLLOUT

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
TIMING = (("seconds", "seconds", "time_s", "standard"),)


@dataclass(frozen=True)
class Cell:
    """One number: ours, and the published one where there is one."""

    mean: float
    sd: float
    published_mean: float | None = None
    published_sd: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours less the published, in units of the published standard deviation."""
        if self.published_mean is None or not self.published_sd:
            return None
        return (self.mean - self.published_mean) / self.published_sd

    def __str__(self) -> str:
        text = f"{self.mean:.2f} ± {self.sd:.2f}"
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
    values: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for _, level, world, _, coverage, method, metric, value in rows:
        if coverage == ROLLOUT:
            values[level, world.split("-")[0]][method, metric].append(value)
    tables = []
    for (level, environment), found in sorted(values.items(), key=lambda item: (-int(item[0][0]), item[0][1])):
        present = {method for method, _ in found}
        methods = tuple(m for m in METHODS if m in present) + tuple(sorted(present - set(METHODS)))
        number = max(len(v) for v in found.values())
        body = []
        for label, metric, published, task in entries:
            cells = tuple(_cell(found, method, metric, (level, environment, published, task)) for method in methods)
            if any(cell is not None for cell in cells):
                body.append((label, cells))
        title = f"{environment}, {level} % stochastic-policy states, {number} batches (mean ± sd)"
        tables.append(ResultTable(f"stochastic{level}-{environment}", title, methods, tuple(body)))
    return tables


def _cell(
    found: dict[tuple[str, str], list[float]], method: str, metric: str, key: tuple[str, str, str | None, str | None]
) -> Cell | None:
    name, _, share = metric.partition(":")
    values = [v for v in found.get((method, name), []) if np.isfinite(v)]
    if not values:
        return None
    mean, sd = cvar(values, float(share)) if share else (float(np.mean(values)), float(np.std(values)))
    level, environment, published, task = key
    plural = {"randomworld": "randomworlds"}.get(environment, environment)
    theirs = published_numbers().get((f"stochastic{level}", plural, task, published, method), (None, None))
    return Cell(mean, sd, *theirs)


def _text(cell: Cell | None) -> str:
    return "–" if cell is None else str(cell)


def _latex(cell: Cell | None) -> str:
    if cell is None:
        return "--"
    published = "" if cell.published_mean is None else f" ({cell.published_mean:g})"
    return rf"${cell.mean:.2f} \pm {cell.sd:.2f}${published}"
