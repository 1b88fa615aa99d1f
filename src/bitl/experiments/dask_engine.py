"""Units of work on a Dask cluster: ``bitl reproduce ... --engine dask --scheduler tcp://host:8786``.

The scheduler hands units to whichever worker is free, and to another one if a worker dies. Workers compute with the
package that is installed where they run; one that has other code than the process that asks is refused by name, because
its results would not be those of this study.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from .. import _validate
from ..errors import BitlError, DataError
from .engine import Compute

WAITING_PER_THREAD = 4  # units handed out ahead: enough to keep workers busy, few enough to stop soon
CONNECT_SECONDS = 10


class DaskEngine:
    """The workers of a running scheduler."""

    def __init__(self, scheduler: str | None) -> None:
        if not scheduler:
            raise DataError("The dask engine needs the address of a running scheduler: --scheduler tcp://host:8786.")
        self.scheduler = scheduler
        self._distributed = _validate.optional_import("distributed", "distributed", "The dask engine")

    def results(self, compute: Compute, units: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield (unit, result) as they finish; closing the generator cancels what has not finished."""
        if not units:
            return
        client = self._connect()
        try:
            yield from self._results(client, compute, units)
        except BitlError:
            raise
        except (self._distributed.KilledWorker, self._distributed.comm.CommClosedError, OSError) as error:
            text = f"The cluster at {self.scheduler} failed: {error}; what was finished is stored, run again to go on."
            raise DataError(text) from error
        finally:
            client.close(timeout=2)

    def _results(self, client: Any, compute: Compute, units: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        queue = iter(units)
        waiting: dict[str, tuple[Any, Any]] = {}

        def submit(number: int) -> list[Any]:
            """Hand out units until ``number`` are waiting; return the new futures."""
            new = []
            for unit in queue if len(waiting) < number else ():
                code = unit.settings()["code"]
                future = client.submit(_compute, compute, unit, code, pure=False)
                waiting[future.key] = (unit, future)
                new.append(future)
                if len(waiting) >= number:
                    break
            return new

        done = self._distributed.as_completed(submit(self._window(client)), loop=client.loop)
        try:
            for future in done:
                unit, _ = waiting.pop(future.key)
                if future.status == "cancelled" or future.status == "lost":
                    raise DataError(
                        f"The scheduler at {self.scheduler} dropped a unit of work; what was finished is stored, "
                        "run again to go on."
                    )
                yield unit, future.result()
                done.update(submit(self._window(client)))
        finally:
            client.cancel([future for _, future in waiting.values()])

    def _connect(self) -> Any:
        try:
            client = self._distributed.Client(self.scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise DataError(
                f"No Dask scheduler answers at {self.scheduler} ({type(error).__name__}); start one with "
                "'dask scheduler' and workers with 'dask worker ADDRESS --nthreads 1'."
            ) from error
        return client

    def _window(self, client: Any) -> int:
        threads = sum(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values())
        return WAITING_PER_THREAD * max(1, threads)


def _compute(compute: Compute, unit: Any, code: str) -> Any:
    """Compute a unit on a worker, if the worker has the same code."""
    os.environ.setdefault("BITL_WORKERS", "1")
    if unit.settings()["code"] != code:
        raise DataError(
            f"The worker on {socket.gethostname()} has another version of bitl than this process; install the same one "
            "on all machines."
        )
    return compute(unit)
