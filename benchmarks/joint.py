"""ITL with and without the reward, beside the paper's numbers and beside a control."""

from __future__ import annotations

import numpy as np

from bitl.experiments import joint

from .timing import console


def main() -> None:
    """Run the study and print it."""
    scores = joint.run()
    console.print(joint.table(scores))
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
