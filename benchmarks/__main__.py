"""Run all benchmarks, or those named: ``python -m benchmarks planning``."""

from __future__ import annotations

import importlib
import sys

BENCHMARKS = ("planning", "posterior", "itl", "itl_certify", "joint")


def main(names: list[str]) -> int:
    """Run the named benchmarks and return the exit code."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"There is no benchmark {unknown[0]!r}; the benchmarks are {', '.join(BENCHMARKS)}.", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
