"""What a result depends on: a hash of the code that computes it.

The code of a unit of work is the module of its method, everything that module imports from the package, and the modules
that make the batch and measure the result. A change anywhere else (another method, the command line, a figure) leaves
the results of this method as good as they were, so they are not computed again.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from .._version import __version__

ROOT = Path(__file__).parents[1]
NOT_FOLLOWED = ROOT / "methods.py"  # the registry imports every method; a unit depends on its own alone


def code_fingerprint(method: Callable[..., Any], *others: Path) -> str:
    """Return a hash of the sources that a method, and the files that use it, depend on."""
    own = inspect.getsourcefile(method)
    roots = [Path(own).resolve()] if own else []
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(_closure((*roots, *(path.resolve() for path in others)))):
        # a method of the user's own counts by its content, wherever it lies
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        digest.update(name.encode())
        digest.update(_bytes(path))
    return digest.hexdigest()


def _closure(roots: Iterable[Path]) -> set[Path]:
    """Return the files, and every file of the package that they import, directly or not."""
    found: set[Path] = set()
    waiting = list(roots)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path) if path != NOT_FOLLOWED else ()
    return found


@cache
def _bytes(path: Path) -> bytes:
    return path.read_bytes()


@cache
def _imported(path: Path) -> tuple[Path, ...]:
    """Return the package's files that a file imports, late imports included."""
    inside = path.is_relative_to(ROOT)
    package = (ROOT.name, *path.relative_to(ROOT).parts[:-1]) if inside else ()
    files: set[Path] = set()
    for node in ast.walk(ast.parse(_bytes(path))):
        names: list[tuple[str, ...]] = []
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            names = [(*base, alias.name) for alias in node.names]
        for name in names:
            if name[:1] == (ROOT.name,) and name[1:]:
                files |= _files_of(name[1:])
    return tuple(sorted(files))


def _files_of(name: tuple[str, ...]) -> set[Path]:
    """Return the files that importing ``bitl.<name>`` runs; the last part may be something inside a module."""
    files: set[Path] = set()
    for depth in range(1, len(name) + 1):
        stem = ROOT.joinpath(*name[:depth])
        files |= {path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()}
    return files
