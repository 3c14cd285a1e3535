"""The verbs `demo` and `simulate`, which need no client: recorded traffic, and a scenario."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from group_coordinator.pipeline.cli.options import Config
from group_coordinator.pipeline.cli.printing import plural
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import interrupted_by_signals


def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Keep the tables in this folder.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print every group and each of its transitions.")
    ] = False,
) -> None:
    """Run a demonstration: a coordinator answers clients that were recorded at a real broker."""
    from group_coordinator.pipeline.replay.demo import run_demo

    with interrupted_by_signals():
        went_well = run_demo(keep, verbose)
    if not went_well:
        raise Failure("not every request was answered in time")


def simulate(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A scenario, one JSON object a line; default: stdin.", exists=True, dir_okay=False
        ),
    ] = None,
    config: Config = None,
) -> None:
    """Run a scenario through the coordinator's state machine on a virtual clock, without Spark.

    Invalid lines are reported and skipped; the exit status is then 1.
    """
    from group_coordinator.coordinator.config import parse_config
    from group_coordinator.pipeline.replay.simulator import simulate as run_scenario
    from group_coordinator.pipeline.settings import read_user_file

    settings: dict[str, Any] = {"group.initial.rebalance.delay.ms": 0}
    if config is not None:
        settings |= read_user_file(config)["group"]
    parsed = parse_config(settings)
    if file is None:
        bad = run_scenario(sys.stdin.buffer, sys.stdout.buffer, parsed)
    else:
        with file.open("rb") as lines:
            bad = run_scenario(lines, sys.stdout.buffer, parsed)
    if bad:
        raise Failure(f"{plural(len(bad), 'invalid line')} skipped; the first: {bad[0]}")
