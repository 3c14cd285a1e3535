"""A command that is run from a clone: `python -m tests.bench`, `python -m tests.trials`."""

from __future__ import annotations

import sys

import typer

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import interrupted_by_signals


def run_command(app: typer.Typer, name: str) -> None:
    """Run a command line. Exits 1 with one line for a Failure, 2 for a wrong call.

    A signal to end is an interrupt: of what is measured no coordinator may go on beside what is
    measured next.
    """
    try:
        with interrupted_by_signals():
            app(prog_name=name)
    except Failure as error:
        sys.exit(f"{name}: {error}")
