r"""ICU-Sepsis: a published simulator of sepsis treatment with 716 states and 25 actions (Choudhary et al. 2024).

The package ``icu-sepsis`` carries the dynamics :math:`T(s' \mid s, a)`, the rewards :math:`r(s, a, s')` (1 for
survival), the start distribution and the admissible actions as data files. They are read from there; the package
itself, which needs the legacy ``gym``, is never imported.

Rewards come as :math:`R(s, a) = \sum_{s'} T\,r`. That lets the true probability of survival show through; with
``reward_on="arrival"`` the survival state itself pays, which is the same decision problem, one step of discount later,
and tells a learner nothing about the dynamics.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from .. import _validate
from .._types import BoolArray
from ..errors import DataError, MissingExtraError
from ..labels import Labels
from ..task import Task
from .world import World


def icu_sepsis(
    *, discount: float, reward_on: str = "action", admissible_only: bool = True, folder: Path | None = None
) -> World:
    """Read the ICU-Sepsis world.

    Parameters
    ----------
    discount
        The factor gamma; the simulator itself uses 1, which planning here does not allow.
    reward_on
        ``"action"``: expected reward per state and action. ``"arrival"``: 1 in the survival state.
    admissible_only
        Mark the actions that the simulator does not admit in a state; otherwise all 25 count, with the average of the
        admissible ones as their dynamics, as in the data file.
    folder
        Where ``dynamics.npz`` and ``admissible_actions.txt`` lie; by default in the installed package.

    Raises
    ------
    MissingExtraError
        If the package is not installed.
    DataError
        If a file is missing or not as expected.
    """
    _validate.one_of(reward_on, "reward_on", ("action", "arrival"))
    folder = folder or _assets()
    try:
        with np.load(folder / "dynamics.npz", allow_pickle=False) as data:
            T, r, start = data["tx_mat"], data["r_mat"], data["d_0"]
        lines = (folder / "admissible_actions.txt").read_text(encoding="ascii").splitlines()
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"Cannot read ICU-Sepsis from {folder}: {error}; reinstall the package.") from error
    S, A = T.shape[:2]
    T = T / T.sum(axis=2, keepdims=True)
    labels = Labels(_state_names(S), tuple(f"fluids {a // 5}, vasopressor {a % 5}" for a in range(A)))
    reward = (T * r).sum(axis=2) if reward_on == "action" else (np.arange(S) == S - 2).astype(np.float64)
    task = Task(
        reward=reward,
        discount=discount,
        start=start / start.sum(),
        admissible=_admissible(lines, S, A) if admissible_only else None,
        labels=labels,
    )
    return World("ICU-Sepsis", T, task)


def _assets() -> Path:
    spec = find_spec("icu_sepsis")  # looks for the package without importing it
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            "worlds.icu_sepsis() needs the package 'icu-sepsis'; install it with: pip install 'bitl[sepsis]'."
        )
    return Path(next(iter(spec.submodule_search_locations))) / "envs" / "assets"


def _state_names(S: int) -> tuple[str, ...]:
    """Clusters of patients by number; the last three states are death, survival and the end."""
    return (*(f"cluster {s}" for s in range(S - 3)), "died", "survived", "over")


def _admissible(lines: list[str], S: int, A: int) -> BoolArray:
    """Parse the list of admissible actions: a line of numbers of actions, then one line of actions per state."""
    allowed = np.zeros((S, A), dtype=np.bool_)
    for s, line in enumerate(lines[1 : S + 1]):
        words = line.split()
        if not all(word.isdecimal() and int(word) < A for word in words):
            raise DataError(f"The list of admissible actions must hold numbers below {A}. Got {line!r} for state {s}.")
        allowed[s, [int(word) for word in words]] = True
    if len(lines) < S + 1 or not allowed.any(axis=1).all():
        raise DataError(f"The list of admissible actions must have a line for each of {S} states.")
    return allowed
