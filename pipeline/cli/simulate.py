"""The verb `simulate`: it runs a scenario on a virtual clock."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from group_coordinator.pipeline.cli.options import Config
from group_coordinator.pipeline.cli.printing import counted
from group_coordinator.pipeline.errors import Failure


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
        raise Failure(f"{counted(len(bad), 'line')} passed over: {bad[0]}")
