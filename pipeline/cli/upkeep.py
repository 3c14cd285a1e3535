"""The verbs `compact`, `retain`, `repair` and `records`: maintenance of the tables.

Stop the coordinators before `repair`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from group_coordinator.pipeline.cli.options import Config, Json, OwnRoot, print_progress
from group_coordinator.pipeline.cli.printing import print_note, to_json_line
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.quoting import quoted

if TYPE_CHECKING:
    from group_coordinator.pipeline.records.record_file import Tally


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


records_app = typer.Typer(
    help="Export and import the offsets topic as Kafka's own binary records.", no_args_is_help=True
)


@records_app.command("export")
def records_export(
    root: OwnRoot,
    file: Annotated[
        str, typer.Argument(help="A .jsonl or .parquet file to write; - is stdout, JSON Lines.")
    ] = "-",
    json: Json = False,
) -> None:
    """Write the offsets topic as Kafka's binary keys and values, in the order of its log."""
    from group_coordinator.pipeline.records.exporter import export

    tally = export(root, file, lambda text: typer.echo(text, err=True))
    # If the records go to stdout, the summary goes to stderr.
    _show_tally("exported", tally, json, err=file == "-")


@records_app.command("import")
def records_import(
    file: Annotated[
        str,
        typer.Argument(
            help="A .jsonl or .parquet file, or a folder of .parquet files; - is stdin, JSON Lines."
        ),
    ],
    root: OwnRoot,
    config: Config = None,
    again: Annotated[
        bool, typer.Option("--again", help="Import also what was imported before.")
    ] = False,
    json: Json = False,
) -> None:
    """Append Kafka's binary records to the offsets topic.

    Running coordinators release their partitions during the import, and requests wait. To complete
    an interrupted import, run it again. A completed import is not repeated unless --again is given.
    Records of Kafka's new consumer groups (KIP-848) are kept, but requests to these groups are
    refused.
    """
    from group_coordinator.pipeline.records.importer import import_
    from group_coordinator.pipeline.settings import load_settings

    tally = import_(
        root, file, load_settings(config), again, lambda text: typer.echo(text, err=True)
    )
    note = f", {tally.repeated} were there already" if tally.repeated else ""
    _show_tally("imported", tally, json, note)


def _show_tally(verb: str, tally: Tally, json: bool, note: str = "", err: bool = False) -> None:
    for name in tally.named:
        print_note(f"skipped {quoted(name)}")
    text = to_json_line(tally) if json else f"{verb} {tally}{note}"
    typer.echo(text, err=err)
