"""What every command prints with: the two consoles and the progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

console = Console()
errors = Console(stderr=True)


@contextmanager
def progress(words: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many units are done, the rate and the time left."""
    columns = (TextColumn(words), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(words, total=total)
        yield lambda done: bar.update(task, completed=done)
