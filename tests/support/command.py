"""Running a command line from a clone: `python -m tests.bench`, `python -m tests.trials`."""

from __future__ import annotations

import sys

import typer

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import interrupted_by_signals


def run_command(app: typer.Typer, name: str) -> None:
    """Run a command line. Exit with 1 and one line for a Failure, with 2 for a wrong call.

    SIGTERM acts as an interrupt. Otherwise coordinators of a measurement could run on during the
    next measurement.
    """
    try:
        with interrupted_by_signals():
            app(prog_name=name)
    except Failure as error:
        sys.exit(f"{name}: {error}")
