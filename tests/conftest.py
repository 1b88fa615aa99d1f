"""What every test run needs first."""

from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "bitl"


def pytest_configure():
    """Drop compilations of ``_kernels_smc`` that are older than ``_kernels``, on which it builds.

    Numba's cache looks at the file of a function only, not at the files of the functions it calls.
    """
    changed = (SOURCE / "_kernels.py").stat().st_mtime
    for path in (SOURCE / "__pycache__").glob("_kernels_smc.*.nb?"):
        if path.stat().st_mtime < changed:
            path.unlink(missing_ok=True)
