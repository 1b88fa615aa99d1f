"""Make the example table: a simulated ward, no real patient. Run ``python examples/make_example.py`` to write it again.

Every hour a simulated clinician sees blood pressure and kidneys and chooses a treatment that is nearly the best one.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

import bitl

PRESSURE, KIDNEY = ("normal BP", "low BP", "very low BP"), ("kidneys ok", "kidneys failing")
STATES = tuple(f"{p} / {k}" for p in PRESSURE for k in KIDNEY)
ACTIONS = ("none", "fluids", "vasopressor", "both")
# probability that pressure rises, stays, falls; that kidneys get worse; that they recover
EFFECT = {
    "none": ((0.10, 0.78, 0.12), 0.03, 0.17),
    "fluids": ((0.40, 0.50, 0.10), 0.04, 0.155),
    "vasopressor": ((0.70, 0.25, 0.05), 0.30, 0.10),
    "both": ((0.85, 0.13, 0.02), 0.46, 0.045),
}
EPSILON, STAYS, HOURS = 0.8, 60, 14


def dynamics() -> np.ndarray:
    """Return the true transition probabilities."""
    T = np.zeros((6, 4, 6))
    for a, name in enumerate(ACTIONS):
        moves, worse, better = EFFECT[name]
        for pressure in range(3):
            for kidney in range(2):
                bad = worse + 0.1 * pressure if kidney == 0 else 1 - better
                for step, chance in zip((-1, 0, 1), moves, strict=True):
                    to = int(np.clip(pressure + step, 0, 2))
                    T[2 * pressure + kidney, a, 2 * to] += chance * (1 - bad)
                    T[2 * pressure + kidney, a, 2 * to + 1] += chance * bad
    return T


def rewards() -> tuple[np.ndarray, np.ndarray]:
    """Return the reward of the ward, and that of one which cares for kidneys most."""
    pressure, kidney = np.divmod(np.arange(6), 2)
    return 10.0 - 4 * pressure - 3 * kidney, 10.0 - pressure - 8 * kidney


def main(folder: Path = Path(__file__).parent) -> None:
    """Write the table and both rewards."""
    rng = np.random.default_rng(7)
    labels = bitl.Labels(STATES, ACTIONS)
    ward, kidneys = rewards()
    task = bitl.Task(ward, 0.9, labels=labels)
    T = dynamics()
    expert = bitl.ExpertActions.epsilon_optimal(T, task, EPSILON)
    with (folder / "ward.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["stay", "hour", "state", "action"])
        for stay in range(STAYS):
            s = int(rng.choice(6, p=[0, 0, 0.4, 0.2, 0.3, 0.1]))
            for hour in range(HOURS):
                a = int(rng.choice(np.flatnonzero(expert.valid[s])))
                out.writerow([f"stay-{stay + 1:03}", hour, STATES[s], ACTIONS[a]])
                s = int(rng.choice(6, p=T[s, a]))
    for name, reward in (("ward_reward.csv", ward), ("kidney_reward.csv", kidneys)):
        lines = ["state,reward", *(f"{s},{r:g}" for s, r in zip(STATES, reward, strict=True))]
        (folder / name).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
