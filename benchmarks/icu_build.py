"""Building transitions from a made-up MIMIC-IV of 20 million charted values: rows per second and peak memory.

``python -m benchmarks.icu_build [rows] [csv.gz|csv|parquet]``. The tables are made first, in a process of their own,
and removed afterwards; the memory is that of the process that builds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .timing import show

ROWS = 20_000_000
PATIENTS = 12_000
BITL = [sys.executable, "-c", "from bitl.cli import main; main()", "icu"]


def measured(command: list[str]) -> tuple[float, float]:
    """Run a command; return its seconds and its peak memory in GiB."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command[3:])} failed")
    return time.perf_counter() - begin, usage.ru_maxrss / 2**20


def main(rows: int = ROWS, file_format: str = "csv.gz") -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="bitl-icu-") as top:
        mimic, out = Path(top) / "mimic", Path(top) / "out" / "transitions.parquet"
        made = ["synthesise", "--out", str(mimic), "--patients", str(PATIENTS), "--chart-rows", str(rows)]
        making, _ = measured([*BITL, *made, "--format", file_format])
        size = sum(path.stat().st_size for path in mimic.rglob("*") if path.is_file()) / 2**20
        seconds, memory = measured([*BITL, "build", "--mimic", str(mimic), "--out", str(out)])
    show(
        f"bitl icu build, {rows:,} rows of chartevents as {file_format} ({size:.0f} MiB)",
        [
            ("seconds to make the tables up", f"{making:.0f}", ""),
            ("seconds to build", f"{seconds:.1f}", ""),
            ("rows of chartevents per second", f"{rows / seconds:,.0f}", ""),
            ("peak memory, GiB", f"{memory:.2f}", "< 3"),
        ],
    )


if __name__ == "__main__":
    main(*(int(word) if word.isdigit() else word for word in sys.argv[1:]))  # type: ignore[arg-type]
