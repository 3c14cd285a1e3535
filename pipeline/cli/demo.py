"""The verb `demo`: it runs a coordinator on recorded conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import interrupted_by_signals


def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Keep the tables in this folder.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Tell of every group and each of its transitions.")
    ] = False,
) -> None:
    """Run a demonstration: a coordinator answers clients that were recorded at a real broker."""
    from group_coordinator.pipeline.replay.demo import run_demo

    with interrupted_by_signals():
        went_well = run_demo(keep, verbose)
    if not went_well:
        raise Failure("not every request was answered in time")
