r"""PS: draws from the untruncated Dirichlet posterior, which knows nothing of the experts' competence.

.. math:: P(T(\cdot \mid s, a) \mid \mathcal D) = \mathrm{Dir}(N_{s,a,\cdot} + \delta), \qquad
          \mathbb E\,T = T^{MLE}

At :math:`\delta = 0.001` a Gamma(:math:`\delta`) variate underflows to 0 in almost half of all float64 draws, so rows
are drawn as logarithms and normalised there. In the returned ``T`` probabilities below 1e-300 are 0.

Draws come in blocks of fixed size, each with a generator spawned from the seed: the answer does not depend on how many
threads share the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..task import Task
from ..transitions import Counts, Transitions, as_counts, match
from .posterior import Posterior

BLOCK = 128
RUNS = 4  # independent draws: any grouping will do, and diagnostics ask for one


def sample_dirichlet(
    batch: Transitions | Counts,
    *,
    draws: int,
    seed: Any,
    task: Task | None = None,
    delta: float = 0.001,
    workers: int | None = None,
) -> Posterior:
    """Draw models from the Dirichlet posterior of the counts (PS).

    Parameters
    ----------
    batch
        Transitions or counts.
    draws
        Number of models to draw.
    seed
        A whole number or a ``numpy.random.SeedSequence``.
    task
        The default task of the posterior; it does not change the draws.
    delta
        The prior pseudo-count of every transition, above 0.
    workers
        Threads to use, by default one per core; the answer does not depend on it.

    Examples
    --------
    >>> batch = Transitions([0, 0], [0, 0], [1, 1], num_states=2, num_actions=1)
    >>> post = sample_dirichlet(batch, draws=1000, seed=0, delta=1.0)
    >>> bool(abs(post.T[:, 0, 0, 1].mean() - 0.75) < 0.02)  # Beta(3, 1)
    True
    """
    counts, labels = (as_counts(batch), as_counts(batch).labels) if task is None else match(batch, task)
    draws = _validate.positive_int(draws, "draws")
    alpha = counts.N + _validate.real(delta, "delta", low=0, ends="()")
    T = np.empty((draws, *alpha.shape))
    generators = block_generators(seed)
    starts = range(0, draws, BLOCK)
    with ThreadPoolExecutor(_validate.workers(workers)) as pool:
        list(pool.map(lambda start, rng: fill(alpha, rng, T[start : start + BLOCK]), starts, generators))
    run = np.arange(draws) * min(RUNS, draws) // draws
    return Posterior(T, "PS", run, task, {"delta": delta}, labels)


def block_generators(seed: Any) -> Iterator[np.random.Generator]:
    """Yield one independent generator per block of draws, for ever."""
    root = _validate.seed_sequence(seed)
    for block in count():
        yield np.random.Generator(np.random.PCG64(child(root, block)))


def child(root: np.random.SeedSequence, number: int) -> np.random.SeedSequence:
    """Return the numbered child of a seed; unlike ``spawn`` this leaves the root as it was."""
    return np.random.SeedSequence(entropy=root.entropy, spawn_key=(*root.spawn_key, number))


def fill(alpha: FloatArray, rng: np.random.Generator, out: FloatArray) -> None:
    """Fill ``out [n, S, A, S]`` with independent draws of Dir(alpha)."""
    from .._kernels import dirichlet_rows

    K = alpha.shape[-1]
    alpha = np.maximum(alpha, 1e-300)  # logarithms of Gamma draws stay finite
    dirichlet_rows(alpha.reshape(-1, K), rng, out.reshape(len(out), -1, K))
