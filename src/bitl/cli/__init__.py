"""The command line: parses, calls, prints. No mathematics here; one module per command or family of commands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .._version import __version__
from ..errors import BitlError
from .demo import demo
from .reproduce import reproduce
from .terminal import console, errors

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


for command in (demo, reproduce):
    app.command()(command)


def main() -> None:
    """Run the command line; errors made on purpose become one sentence and exit code 2."""
    try:
        app()
    except BitlError as error:
        errors.print(f"bitl: {error}", style="red", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("bitl: interrupted; nothing was left half-written.", highlight=False)
        sys.exit(130)
