"""`demo`: a coordinator at work on recorded conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import Failure


def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Keep the tables in this folder.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Tell of every group and each of its transitions.")
    ] = False,
) -> None:
    """See it work: recorded clients of a real broker; workers and Kafka clients that share tables.

    The Kafka clients are confluent-kafka's; without it their scene is left out.
    """
    from pipeline.replay.demo import run_demo

    if not run_demo(keep, verbose):
        raise Failure("not every request was answered, or not every row was put out, in time")
