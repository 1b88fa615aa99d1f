"""What every command prints with: the two consoles and the progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

console = Console(emoji=False)  # a label such as :x: is a label
errors = Console(stderr=True, emoji=False)


@contextmanager
def progress(words: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many units are done, the rate and the time left."""
    columns = (TextColumn(words), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(words, total=total, rate="")
        before: list[int] = []  # what an earlier run had done: no part of this one's rate

        def told(done: int) -> None:
            if not before:
                before.append(done)
                bar.reset(task, completed=done)
                return
            minutes = (bar.tasks[0].elapsed or 0) / 60
            rate = f"{(done - before[0]) / minutes:.0f} a minute" if minutes > 0 else ""
            bar.update(task, completed=done, rate=rate)

        yield told


@contextmanager
def share_progress(words: str) -> Iterator[Callable[[float], None]]:
    """Show the share of a long piece of work that is done, beside the answer, not in it."""
    columns = (TextColumn(words), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(words, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """Say what is going on, where someone looks."""
    if not errors.is_terminal:
        yield
        return
    with errors.status(words):
        yield
