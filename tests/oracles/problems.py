"""Random problems for property tests, made from one seed each."""

import contextlib
import signal

import numpy as np

from bitl import Task


def random_model(rng, S, A, *, sparse=False):
    """A model ``[S, A, S]``; sparse rows have about half of their entries at exactly 0."""
    T = rng.exponential(size=(S, A, S))
    if sparse:
        T *= rng.random(T.shape) < 0.5
        T[..., 0] += T.sum(axis=-1) == 0
    return T / T.sum(axis=-1, keepdims=True)


def random_mask(rng, S, A):
    """Admissible actions, at least one in each state."""
    mask = rng.random((S, A)) < 0.6
    mask[np.arange(S), rng.integers(A, size=S)] = True
    return mask


def random_task(rng, S, A, gamma, *, masked=False):
    start = rng.exponential(size=S)
    return Task(
        reward=rng.normal(size=(S, A)),
        discount=gamma,
        start=start / start.sum(),
        admissible=random_mask(rng, S, A) if masked else None,
    )


@contextlib.contextmanager
def time_limit(seconds):
    """Fail instead of hanging when something loops for ever."""

    def stop(*_):
        raise TimeoutError(f"nothing came back within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
