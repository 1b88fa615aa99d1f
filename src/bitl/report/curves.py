"""Figures of a study: value against coverage, value against Bayesian regret, held-out matching against epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from .._types import FloatArray
from . import style

MARKERS = {"MLE": "s", "PS": "v", "MCE": "^", "ITL": "o", "BITL": "D"}
TASKS = ("standard task", "transfer task")
TASK_LOOKS = ((style.BLUE, "o"), (style.VERMILLION, "x"))
Z95 = 1.96
FEW_POINTS = 10  # fewer say nothing about a correlation

Curves = Mapping[str, Mapping[float, Sequence[float]]]  # method -> coverage -> values over batches
Cloud = tuple[FloatArray, FloatArray]  # regret, normalised value: one point per batch


def correlation(x: FloatArray, y: FloatArray) -> float:
    """Return Spearman's rank correlation, NaN where one side does not vary."""
    from scipy.stats import spearmanr

    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(spearmanr(x, y).statistic)


def draw_study(
    title: str, curves: Sequence[Sequence[Curves]], clouds: Sequence[Sequence[Cloud]], rows: Sequence[str]
) -> Any:
    """Draw one row per environment: value against coverage for both tasks, and value against regret.

    Parameters
    ----------
    title
        The figure's title.
    curves
        For each environment and task, the normalised values by method and coverage.
    clouds
        For each environment and task, Bayesian regret and normalised value of the posterior, a point per batch.
    rows
        Names of the environments.
    """
    plt = style.pyplot()
    with plt.rc_context(style.RC):
        figure, axes = plt.subplots(len(rows), 3, figsize=(9.6, 2.9 * len(rows) + 0.9), squeeze=False)
        for line, name, found, cloud in zip(axes, rows, curves, clouds, strict=True):
            for axis, task, values in zip(line, TASKS, found, strict=False):
                _coverage_panel(axis, values)
                axis.set_title(f"{name}, {task}")
            _regret_panel(line[2], cloud)
            line[2].set_title(f"{name}, BITL: value and regret")
        drawn = {
            name: line
            for row in axes
            for axis in row[:2]
            for line, name in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            drawn.values(),
            drawn.keys(),
            loc="lower center",
            ncols=max(1, len(drawn)),
            title="mean and 95 % interval of the mean",
        )
        figure.suptitle(title, fontsize=11)
        figure.tight_layout(rect=(0, 0.55 / figure.get_figheight(), 1, 1))
    return figure


def _coverage_panel(axis: Any, curves: Curves) -> None:
    low = 1.0
    for method, by_coverage in curves.items():
        if not by_coverage:
            continue
        x = np.array(sorted(by_coverage))
        mean = np.array([np.mean(by_coverage[c]) for c in x])
        error = np.array(
            [
                Z95 * np.std(by_coverage[c], ddof=1) / np.sqrt(len(by_coverage[c])) if len(by_coverage[c]) > 1 else 0.0
                for c in x
            ]
        )
        colour = style.METHOD_COLOURS.get(method, style.VERMILLION)
        axis.plot(
            100 * x, mean, color=colour, marker=MARKERS.get(method, "P"), markersize=4, linewidth=1.3, label=method
        )
        axis.fill_between(100 * x, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        low = min(low, float((mean - error).min()))
    axis.axhline(1, color="#888888", linewidth=0.8, linestyle=":")
    axis.set_xlabel("states the experts were seen in (%)")
    axis.set_ylabel("normalised value\n(0 random, 1 optimal)")
    axis.set_ylim(max(-1.0, low - 0.05), 1.05)
    axis.set_xticks([20, 40, 60, 80, 100])


def _regret_panel(axis: Any, clouds: Sequence[Cloud]) -> None:
    for (regret, value), task, (colour, marker) in zip(clouds, TASKS, TASK_LOOKS, strict=False):
        words = f"{task}: ρ = {correlation(regret, value):.2f}" if len(regret) >= FEW_POINTS else f"{task}: few batches"
        axis.scatter(regret, value, s=12, color=colour, marker=marker, alpha=0.6, linewidths=0.9, label=words)
    axis.set_xlabel("Bayesian regret (reward units)")
    axis.set_ylabel("normalised value")
    axis.legend(fontsize=7.5, loc="lower left", handletextpad=0.2)


def draw_matching(axis: Any, epsilons: FloatArray, scores: Mapping[str, FloatArray]) -> None:
    """Draw scores ``[E, n]`` over batches or folds against epsilon: their mean and its 95 % interval."""
    looks = cycle(zip((style.BLUE, style.SKY, style.VERMILLION, style.ORANGE), "oD^v", strict=True))
    for (name, values), (colour, marker) in zip(scores.items(), looks, strict=False):
        known = (~np.isnan(values)).sum(axis=1)
        shown = known > 0  # an epsilon may have no model in any of them
        mean = np.nanmean(values[shown], axis=1)
        error = Z95 * np.nanstd(values[shown], axis=1) / np.sqrt(np.maximum(known[shown] - 1, 1))
        x = epsilons[shown]
        axis.plot(x, mean, color=colour, marker=marker, markersize=4, linewidth=1.3, label=name)
        axis.fill_between(x, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)


def draw_tuning(title: str, epsilons: FloatArray, scores: Mapping[str, FloatArray], true: float | None) -> Any:
    """Draw held-out matching against epsilon: one line per score ``[E, dataset]`` with its interval.

    ``true`` marks the epsilon of the simulated experts, where they are simulated.
    """
    plt = style.pyplot()
    with plt.rc_context(style.RC):
        figure, axis = plt.subplots(figsize=(6.2, 3.8))
        draw_matching(axis, epsilons, scores)
        if true is not None:
            axis.axvline(true, color="#444444", linewidth=1, linestyle="--", label="the experts' own epsilon")
        axis.set_xlabel("epsilon assumed by ITL (reward units)")
        axis.set_ylabel("matching with held-out decisions\n(share of states)")
        axis.set_title(title, fontsize=9)
        axis.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))
        figure.tight_layout()
    return figure


def draw_slices(
    title: str, panels: Sequence[tuple[str, FloatArray, Any, FloatArray | None]], labels: tuple[str, str]
) -> Any:
    """Draw where models are feasible, one slice per panel, with a straight line from inside through outside."""
    plt = style.pyplot()
    from matplotlib.colors import ListedColormap

    with plt.rc_context(style.RC):
        figure, axes = plt.subplots(1, len(panels), figsize=(3.1 * len(panels), 3.9), squeeze=False, sharey=True)
        for axis, (name, grid, feasible, witness) in zip(axes.flat, panels, strict=True):
            colours = ListedColormap(["white", "#9ecae1"])
            axis.pcolormesh(grid, grid, feasible.T.astype(float), cmap=colours, vmin=0, vmax=1, rasterized=True)
            axis.contour(grid, grid, feasible.T.astype(float), levels=[0.5], colors=[style.BLUE], linewidths=1)
            if witness is not None:
                axis.plot(witness[:, 0], witness[:, 1], color="black", linewidth=1, linestyle="--")
                axis.plot(*witness[[0, 2]].T, "o", color="black", markersize=5)
                axis.plot(*witness[1], "x", color=style.VERMILLION, markersize=8, markeredgewidth=2)
            axis.set_title(name)
            axis.set_xlabel(labels[0])
            axis.set_aspect("equal")
        axes[0][0].set_ylabel(labels[1])
        handles = [
            plt.Rectangle((0, 0), 1, 1, facecolor="#9ecae1", edgecolor=style.BLUE, label="every constraint holds"),
            plt.Line2D([], [], marker="o", color="black", linestyle="--", label="two feasible models"),
            plt.Line2D(
                [],
                [],
                marker="x",
                color=style.VERMILLION,
                linestyle="",
                markeredgewidth=2,
                label="their midpoint: not feasible",
            ),
        ]
        figure.legend(handles=handles, loc="lower center", ncols=3)
        figure.suptitle(title, fontsize=11)
        figure.tight_layout(rect=(0, 0.11, 1, 1))
    return figure
