"""One look for all figures: the colour-blind-safe palette of Okabe and Ito, and type that is legible in print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import _files, _validate

BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, YELLOW, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#000000",
)
METHOD_COLOURS = {"MLE": BLACK, "PS": PURPLE, "MCE": ORANGE, "ITL": BLUE, "ITL-No-R": SKY, "BITL": GREEN}
RC = {
    "figure.dpi": 100,
    "savefig.dpi": 150,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "bitl",  # the same picture is the same file
}

LABELLED = {**RC, "text.parse_math": False}  # for figures with people's own labels: two dollar signs are no formula


def pyplot() -> Any:
    """Return matplotlib's pyplot, set up to draw without a screen."""
    matplotlib = _validate.optional_import("matplotlib", "report", "Drawing figures")
    matplotlib.use("Agg")
    return _validate.optional_import("matplotlib.pyplot", "report", "Drawing figures")


def save(figure: Any, path: Path) -> list[Path]:
    """Write a figure as PNG and SVG and close it; return both paths."""
    paths = []
    for suffix in (".png", ".svg"):
        target = path.with_suffix(suffix)
        with _files.replacing(target) as temporary:
            figure.savefig(
                temporary, format=suffix[1:], bbox_inches="tight", metadata={} if suffix == ".png" else {"Date": None}
            )
        paths.append(target)
    pyplot().close(figure)
    return paths
