"""The command line: parses, calls, prints. No mathematics here; one module per command or family of commands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .._version import __version__
from ..errors import BitlError
from .ask import report, transfer, whatif
from .demo import demo
from .icu import icu
from .inspect_table import inspect
from .learn import fit, sample, tune
from .reproduce import reproduce
from .terminal import console, errors

INTERRUPTED = 130  # what shells expect after Ctrl-C

app = typer.Typer(
    name="bitl",
    help="Learn how the world responds from the logged decisions of near-optimal experts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        console.print(f"bitl {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Learn how the world responds from the logged decisions of near-optimal experts."""


for command in (inspect, fit, sample, tune, transfer, whatif, report, demo, reproduce):
    app.command()(command)
app.add_typer(icu)


def main() -> None:
    """Run the command line; errors made on purpose become one sentence and exit code 2."""
    try:
        app()
    except BitlError as error:
        # labels may hold brackets, which are not markup
        errors.print(f"bitl: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:  # typer turns Ctrl-C into this code
            raise
        errors.print("bitl: interrupted; nothing was left half-written.", highlight=False)
        sys.exit(INTERRUPTED)
