"""Independent runs of a sampler in threads, with shared progress and a clean end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from .. import _validate
from .dirichlet import child

Report = Callable[[float], None]  #: told the share of one run that is done; raises where the run is to end


def generators(seed: Any, runs: int) -> list[np.random.Generator]:
    """Return a generator for each run, a child of the seed, so that threads do not matter."""
    root = _validate.seed_sequence(seed)
    return [np.random.Generator(np.random.PCG64(child(root, i))) for i in range(runs)]


def independent_runs(
    run: Callable[[int, Report], Any],
    runs: int,
    threads: int,
    progress: Callable[[float], None] | None,
) -> list[Any]:
    """Return the results of all runs, in their order.

    What one run raises ends the others at their next report.
    """
    stop, order = threading.Event(), threading.Lock()
    done = np.zeros(runs)

    def one(i: int) -> Any:
        def report(share: float) -> None:
            if stop.is_set():
                raise _Stopped
            with order:
                done[i] = share
                if progress is not None:
                    progress(float(done.mean()))

        try:
            report(0.0)  # a run that waited for its turn may not have to start
            return run(i, report)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(threads) as pool:
        try:
            futures = [pool.submit(one, i) for i in range(runs)]
            wait(futures)
        except BaseException:  # a keyboard interrupt: let the runs end at their next report
            stop.set()
            raise
    causes = [error for error in (future.exception() for future in futures) if error is not None]
    for error in causes:
        if not isinstance(error, _Stopped):
            raise error
    return [future.result() for future in futures]


class _Stopped(Exception):  # noqa: N818 - not an error but the consequence of another
    """Raised in a run that is to end because another one failed or the user has interrupted."""
