"""Ten million rows to counts: seconds and peak memory, each format in a fresh process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from .timing import show

ROWS, STEPS, STATES, ACTIONS = 10_000_000, 40, 750, 25
CHILD = """
import resource, sys, time
import bitl
begin = time.perf_counter()
table = bitl.read_table(sys.argv[1])
batch = table.transitions()
assert batch.counts.N.sum() == len(table), "every transition is counted"
seconds = time.perf_counter() - begin
print(f"{seconds} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2} {len(table)}")
"""


def write_tables(folder: Path, rows: int) -> list[Path]:
    """Write the same log with text labels as Parquet and CSV, with next states and without, and one out of order."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    states = pa.array([f"state {i}" for i in range(STATES)])
    actions = pa.array([f"action {i}" for i in range(ACTIONS)])
    index = np.arange(rows)
    columns = {
        "episode": pa.array(index // STEPS),
        "step": pa.array(index % STEPS),
        "state": states.take(pa.array(rng.integers(STATES, size=rows))),
        "action": actions.take(pa.array(rng.integers(ACTIONS, size=rows))),
        "next_state": states.take(pa.array(rng.integers(STATES, size=rows))),
    }
    table = pa.table(columns)
    paths = [folder / "given.parquet", folder / "derived.parquet", folder / "shuffled.parquet", folder / "given.csv"]
    pyarrow.parquet.write_table(table, paths[0])
    pyarrow.parquet.write_table(table.drop_columns(["next_state"]), paths[1])
    pyarrow.parquet.write_table(table.take(pa.array(rng.permutation(rows))), paths[2])
    pyarrow.csv.write_csv(table, paths[3])
    return paths


def main(rows: int = ROWS) -> None:
    """Write, read and report."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for path in write_tables(Path(folder), rows):
            answer = subprocess.run([sys.executable, "-c", CHILD, path], capture_output=True, text=True, check=True)
            seconds, memory, number = map(float, answer.stdout.split())
            size = path.stat().st_size / 1e6
            words = f"{path.name}, {rows:,} rows ({size:.0f} MB), {number:,.0f} transitions to counts"
            found.append((words, f"{seconds:.1f} s, {memory:.2f} GiB", "seconds, < 2 GiB"))
    show(f"Reading tables: {STATES} states, {ACTIONS} actions, labels are text", found)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
