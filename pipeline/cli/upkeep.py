"""The verbs `compact`, `retain` and `repair`: manual upkeep.

Stop the coordinators before `repair`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from group_coordinator.pipeline.cli.options import Config, Json, OwnRoot, print_progress
from group_coordinator.pipeline.cli.printing import to_json_line
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import Failure


def compact(
    root: OwnRoot,
    config: Config = None,
    force: Annotated[
        bool, typer.Option("--force", help="Compact whatever the dirty ratio is.")
    ] = False,
    json: Json = False,
) -> None:
    """Compact the closed segments of the offsets topic, as Kafka's log cleaner does."""
    from group_coordinator.pipeline.settings import load_settings
    from group_coordinator.pipeline.upkeep.compaction import compact as compact_topic

    result = compact_topic(root, load_settings(config).upkeep, clock_ms(), print_progress, force)
    typer.echo(to_json_line(result) if json else result.line())


def retain(root: OwnRoot, config: Config = None, json: Json = False) -> None:
    """Delete expired rows of the other tables and the topics; join small files, and vacuum."""
    from group_coordinator.pipeline.settings import load_settings
    from group_coordinator.pipeline.upkeep.retention import retain as retain_tables
    from group_coordinator.pipeline.upkeep.topic_retention import retain_topics

    settings = load_settings(config).upkeep
    results = retain_tables(root, settings, clock_ms(), print_progress)
    results += retain_topics(root, settings, clock_ms(), print_progress)
    if not results:
        raise Failure(f"no tables under {root}")
    for result in results:
        typer.echo(to_json_line(result) if json else result.line())
    failed = [result.table for result in results if result.failure is not None]
    if failed:
        raise Failure(
            f"these tables could not be cleaned up, and are unchanged: {', '.join(failed)}"
        )


def repair(
    root: OwnRoot,
    execute: Annotated[
        bool, typer.Option("--execute", help="Repair; without it, only report.")
    ] = False,
    json: Json = False,
) -> None:
    """Repair tables that a loss of power left torn, and make altered tables plain again.

    Stop every process first. The torn content is lost, and may include answered requests. It is
    kept in each table's folder `_torn`. An altered table loses no row.
    """
    from group_coordinator.pipeline.upkeep.repair import repair as repair_tables

    results = repair_tables(root, execute)
    for result in results:
        for line in [to_json_line(result)] if json else result.lines():
            typer.echo(line)
    if not results and not json:
        typer.echo(f"no table under {root} is torn or altered")
    elif not execute:
        print_progress("nothing was changed: add --execute to repair the tables")
    failed = [result.table for result in results if result.failure is not None]
    if failed:
        raise Failure(f"these tables could not be repaired: {', '.join(failed)}")
