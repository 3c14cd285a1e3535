"""`compact` and `retain`: upkeep by hand, beside a running coordinator or without one."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.cli.options import Config, Json, Root, encoded, progress
from pipeline.clock import clock_ms
from pipeline.errors import Failure


def compact(
    root: Root,
    config: Config = None,
    force: Annotated[bool, typer.Option("--force", help="Whatever share is dirty.")] = False,
    json: Json = False,
) -> None:
    """Compact the closed segments of the offsets topic, as Kafka's log cleaner does."""
    from pipeline.settings import load_settings
    from pipeline.upkeep.compaction import compact as compact_topic

    result = compact_topic(root, load_settings(config).upkeep, clock_ms(), progress, force)
    typer.echo(encoded(result) if json else result.line())


def retain(root: Root, config: Config = None, json: Json = False) -> None:
    """Drop what is past its retention from the other tables, and pack and vacuum them all."""
    from pipeline.settings import load_settings
    from pipeline.upkeep.retention import retain as retain_tables

    results = retain_tables(root, load_settings(config).upkeep, clock_ms(), progress)
    if not results:
        raise Failure(f"no tables under {root}")
    for result in results:
        typer.echo(encoded(result) if json else result.line())
    failed = [result.table for result in results if result.failure is not None]
    if failed:
        raise Failure(f"these tables were left as they were: {', '.join(failed)}")
