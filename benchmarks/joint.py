"""ITL with and without the reward, beside the paper's numbers and beside a control."""

from __future__ import annotations

import numpy as np
from rich.table import Table

from bitl.experiments import joint

from .timing import console


def main() -> None:
    """Run the study and print it."""
    scores = joint.run()
    table = Table(title="Joint reward (gridworld, 20 batches, epsilon 3; mean ± sd over batches)", title_justify="left")
    table.add_column("metric")
    for name in scores:
        table.add_column(name, justify="right")
    for name in joint.PUBLISHED:
        table.add_column(f"paper: {name}", justify="right")
    for metric in joint.METRICS:
        ours = [f"{v[metric].mean():.2f} ± {v[metric].std(ddof=1):.2f}" for v in scores.values()]
        theirs = ["{:.2f} ± {:.2f}".format(*published[metric]) for published in joint.PUBLISHED.values()]
        table.add_row(metric, *ours, *theirs)
    console.print(table)
    base = scores["control"]
    for name in ("ITL", "ITL-No-R", "ITL-No-R, per state"):
        words = []
        for metric in ("value", "best_matching", "value_transfer", "best_matching_transfer"):
            difference = scores[name][metric] - base[metric]
            error = difference.std(ddof=1) / np.sqrt(len(difference))
            words.append(f"{metric} {difference.mean():+.3f} ± {error:.3f}")
        console.print(f"{name} less control, same batches (mean ± standard error): " + ", ".join(words))


if __name__ == "__main__":
    main()
