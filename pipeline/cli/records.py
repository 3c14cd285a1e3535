"""The verbs `records`: they export and import the offsets topic as Kafka's binary records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from group_coordinator.pipeline.cli.options import Config, Json, OwnRoot
from group_coordinator.pipeline.cli.printing import print_note, to_json_line
from group_coordinator.pipeline.quoting import quoted

if TYPE_CHECKING:
    from group_coordinator.pipeline.records.record_file import Tally

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
