"""Run the short benchmarks, or those named: ``python -m benchmarks itl_certify``."""

from __future__ import annotations

import importlib
import sys

SHORT = ("planning", "posterior", "itl", "joint", "readers")
# minutes each
LONG = ("itl_certify", "mce", "bitl_mixing", "bitl_icu", "bitl_sepsis", "transfer_verdict", "icu_build", "icu_sepsis")


def main(names: list[str]) -> int:
    """Run the named benchmarks and return the exit code."""
    chosen = list(SHORT + LONG) if names == ["all"] else names or list(SHORT)
    unknown = [name for name in chosen if name not in SHORT + LONG]
    if unknown:
        known = ", ".join(SHORT + LONG)
        print(f"There is no benchmark {unknown[0]!r}; the benchmarks are {known}, or all.", file=sys.stderr)
        return 2
    for name in chosen:
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
