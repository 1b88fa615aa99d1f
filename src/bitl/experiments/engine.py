"""Engines: who computes the units of a study. Results do not depend on it, because seeds belong to the units.

Results come back to the process that asked for them, which writes them as they arrive.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import Any, Protocol

from .. import _validate

Compute = Callable[[Any], Any]
ONE_THREAD = dict.fromkeys(("BITL_WORKERS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Engine(Protocol):
    """Computes units in any order and yields each with its result."""

    def results(self, compute: Compute, units: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield (unit, result) as they finish."""
        ...


class LocalEngine:
    """Processes of this machine, each on one thread."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = _validate.workers(workers)

    def results(self, compute: Compute, units: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield (unit, result) as they finish; closing the generator cancels what has not begun."""
        if self.workers == 1:
            for unit in units:
                yield unit, compute(unit)
            return
        with _environment(ONE_THREAD):
            pool = ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"), initializer=_end_with_parent)
            try:
                waiting: dict[Future[Any], Any] = {}
                queue = iter(units)
                while True:
                    # a short queue, so that an interruption has little to wait for
                    for unit in queue:
                        waiting[pool.submit(compute, unit)] = unit
                        if len(waiting) >= 2 * self.workers:
                            break
                    if not waiting:
                        return
                    finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in finished:
                        yield waiting.pop(future), future.result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """Let this worker end with the process that started it, which cannot tell it to if it is killed."""

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the processes started inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
