"""ITL with and without the reward, on the same batches, beside a control that takes the prior for the reward."""

from __future__ import annotations

import numpy as np

from bitl.experiments import joint
from bitl.experiments.tables import joint_tables
from bitl.experiments.unit import How

from .timing import console

METRICS = ("value", "best_matching", "value_transfer", "best_matching_transfer")


def main() -> None:
    """Run the study and print it, with paired differences."""
    rows = [row for unit in joint.units(20, How()) for row in joint.compute(unit)]
    for table in joint_tables(rows):
        console.print(table.rich())
    scores = {(method, metric, dataset): value for _, _, _, dataset, _, method, metric, value in rows}
    for name in ("ITL", "ITL-No-R", joint.PER_STATE):
        words = []
        for metric in METRICS:
            less = np.array([scores[name, metric, i] - scores["control", metric, i] for i in range(20)])
            words.append(f"{metric} {less.mean():+.3f} ± {less.std(ddof=1) / np.sqrt(len(less)):.3f}")
        console.print(f"{name} less control, same batches (mean ± standard error): " + ", ".join(words))


if __name__ == "__main__":
    main()
