"""Pictures of a gridworld: rewards, policies and visited states, on paper and in a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._types import BoolArray, FloatArray, IntArray
from ..worlds.gridworld import MOVES
from . import style

ARROWS = "→↑←↓"
NO_PREFERENCE = -1  # in a policy: the model ties several actions
VERDICTS = ("optimal", "within epsilon", "worse", "no preference")
VERDICT_COLOURS = (style.BLUE, style.ORANGE, style.VERMILLION, "#777777")
LABEL_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
TERMINAL_STYLES = ("bold blue", "yellow", "red", "dim")


@dataclass(frozen=True, eq=False)
class PolicyPanel:
    """One policy on the grid and how good each of its actions truly is."""

    title: str
    policy: IntArray  #: ``[S]`` actions, or NO_PREFERENCE
    verdict: IntArray  #: ``[S]`` index into VERDICTS
    note: str = ""


def draw_policies(
    panels: list[PolicyPanel], *, reward: FloatArray, visited: BoolArray, shape: tuple[int, int], title: str
) -> Any:
    """Draw one grid per policy: tiles by reward, arrows by verdict, a dot where the experts were seen."""
    plt = style.pyplot()
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    with plt.rc_context(style.RC):
        figure, axes = plt.subplots(rows, columns, figsize=(2.45 * columns, 2.75 * rows + 0.9), squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        for axis, panel in zip(axes.flat, panels, strict=False):
            _draw_tiles(axis, reward, visited, shape)
            _draw_arrows(axis, panel, shape)
            axis.set_title(panel.title + (f"\n{panel.note}" if panel.note else ""), fontsize=9)
        figure.suptitle(title, fontsize=10.5)
        _legend(figure, plt)
        figure.tight_layout(rect=(0, 0.4 / figure.get_figheight(), 1, 1))
    return figure


@dataclass(frozen=True, eq=False)
class RewardPanel:
    """A task on the grid: what each tile pays and which actions are good there."""

    title: str
    reward: FloatArray  #: ``[S]``
    optimal: BoolArray  #: ``[S, A]``
    near: BoolArray  #: ``[S, A]``, within epsilon of the optimum


def draw_tasks(panels: list[RewardPanel], *, shape: tuple[int, int], start: int, title: str) -> Any:
    """Draw one grid per task: the reward of each tile, its optimal actions, and those within epsilon."""
    plt = style.pyplot()
    with plt.rc_context(style.RC):
        figure, axes = plt.subplots(1, len(panels), figsize=(3.5 * len(panels), 4.4), squeeze=False)
        for axis, panel in zip(axes.flat, panels, strict=True):
            axis.set_axis_off()
            _draw_tiles(axis, panel.reward, np.zeros(len(panel.reward), dtype=bool), shape)
            for s, reward in enumerate(panel.reward):
                y, x = divmod(s, shape[1])
                words = f"{reward:g}" + (" start" if s == start else "")
                axis.text(x + 0.06, y + 0.95, words, fontsize=6.5, color="#333333", va="top", bbox=LABEL_BOX)
                for a in np.flatnonzero(panel.near[s]):
                    _short_arrow(axis, (x + 0.5, y + 0.43), MOVES[a], optimal=bool(panel.optimal[s, a]))
            axis.set_title(panel.title)
        figure.suptitle(title, fontsize=10.5)
        handles = [
            plt.Line2D([], [], color=VERDICT_COLOURS[0], linewidth=2, label="optimal action"),
            plt.Line2D([], [], color=VERDICT_COLOURS[1], linewidth=1, linestyle="--", label="within epsilon of it"),
            plt.Rectangle((0, 0), 1, 1, facecolor="#d9d9d9", hatch="////", label="soft wall"),
            plt.Rectangle((0, 0), 1, 1, facecolor="#cfe8f7", edgecolor="#444444", label="goal"),
        ]
        figure.legend(handles=handles, loc="lower center", ncols=4, fontsize=8)
        figure.tight_layout(rect=(0, 0.07, 1, 1))
    return figure


def _short_arrow(axis: Any, centre: tuple[float, float], move: tuple[int, int], *, optimal: bool) -> None:
    from matplotlib.patches import FancyArrowPatch

    (x, y), (dy, dx) = centre, move
    axis.add_patch(
        FancyArrowPatch(
            (x + 0.05 * dx, y + 0.05 * dy),
            (x + 0.36 * dx, y + 0.36 * dy),
            arrowstyle="-|>",
            mutation_scale=9 if optimal else 6,
            color=VERDICT_COLOURS[0 if optimal else 1],
            linewidth=1.8 if optimal else 1.0,
            linestyle="-" if optimal else (0, (2, 1)),
            shrinkA=0,
            shrinkB=0,
        )
    )


def _draw_tiles(axis: Any, reward: FloatArray, visited: BoolArray, shape: tuple[int, int]) -> None:
    from matplotlib.patches import Circle, Rectangle

    rows, columns = shape
    for s in range(rows * columns):
        y, x = divmod(s, columns)
        goal, wall = reward[s] > 1, reward[s] < -1
        face = "#cfe8f7" if goal else "#d9d9d9" if wall else "white"
        hatch = "///" if wall else None
        axis.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor="#8c8c8c", linewidth=0.6, hatch=hatch))
        if goal:
            axis.add_patch(Rectangle((x + 0.04, y + 0.04), 0.92, 0.92, fill=False, edgecolor="#444444", linewidth=1.2))
        if visited[s]:
            axis.add_patch(Circle((x + 0.14, y + 0.86), 0.075, color="black"))
    axis.set_xlim(0, columns)
    axis.set_ylim(0, rows)
    axis.set_aspect("equal")


def _draw_arrows(axis: Any, panel: PolicyPanel, shape: tuple[int, int]) -> None:
    from matplotlib.patches import FancyArrowPatch

    for s, a in enumerate(panel.policy):
        y, x = divmod(s, shape[1])
        if a == NO_PREFERENCE:
            axis.plot([x + 0.42, x + 0.58], [y + 0.5, y + 0.5], color=VERDICT_COLOURS[3], linewidth=1.4)
            continue
        dy, dx = MOVES[a]
        colour = VERDICT_COLOURS[panel.verdict[s]]
        begin, end = (x + 0.5 - 0.3 * dx, y + 0.5 - 0.3 * dy), (x + 0.5 + 0.34 * dx, y + 0.5 + 0.34 * dy)
        hollow = panel.verdict[s] == 2
        axis.add_patch(
            FancyArrowPatch(
                begin,
                end,
                arrowstyle="-|>",
                mutation_scale=8,
                edgecolor=colour,
                facecolor="white" if hollow else colour,
                linewidth=1.4,
                linestyle=(0, (1.2, 0.8)) if hollow else "-",
                shrinkA=0,
                shrinkB=0,
            )
        )


def _legend(figure: Any, plt: Any) -> None:
    handles = [
        plt.Line2D([], [], color=colour, linewidth=2, linestyle=":" if i == 2 else "-", label=f"action: {word}")
        for i, (word, colour) in enumerate(zip(VERDICTS, VERDICT_COLOURS, strict=True))
    ]
    handles[3].set_label(VERDICTS[3])
    handles.append(plt.Line2D([], [], marker="o", color="black", linestyle="", markersize=4, label="experts seen here"))
    handles.append(plt.Rectangle((0, 0), 1, 1, facecolor="#d9d9d9", hatch="////", label="soft wall"))
    handles.append(plt.Rectangle((0, 0), 1, 1, facecolor="#cfe8f7", edgecolor="#444444", label="goal"))
    figure.legend(handles=handles, loc="lower center", ncols=4, fontsize=8)


def terminal_grid(panel: PolicyPanel, visited: BoolArray, reward: FloatArray, shape: tuple[int, int]) -> Any:
    """Return the same picture as rich text: arrows by verdict, underlined where the experts were seen."""
    from rich.text import Text

    text = Text(f"{panel.title}\n", style="bold")
    for y in reversed(range(shape[0])):
        for x in range(shape[1]):
            s = y * shape[1] + x
            look = TERMINAL_STYLES[panel.verdict[s]] + (" underline" if visited[s] else "")
            background = " on grey30" if reward[s] < -1 else " on dark_green" if reward[s] > 1 else ""
            text.append("-" if panel.policy[s] == NO_PREFERENCE else ARROWS[panel.policy[s]], style=look + background)
            text.append(" ")
        text.append("\n")
    return text


def panel(
    title: str, pi: FloatArray, optimal: BoolArray, near: BoolArray, *, count_optimal: bool = True
) -> PolicyPanel:
    """Return the picture of a policy ``[S, A]``, judged by the truly optimal and near-optimal actions ``[S, A]``."""
    clear = pi.max(axis=1) == 1
    policy = np.where(clear, pi.argmax(axis=1), NO_PREFERENCE)
    rows = np.arange(len(policy))
    verdict = np.where(optimal[rows, policy], 0, np.where(near[rows, policy], 1, 2))
    verdict[~clear] = 3
    note = f"{int((verdict == 0).sum())} of {len(policy)} optimal" if count_optimal else ""
    return PolicyPanel(title, policy, verdict, note)
