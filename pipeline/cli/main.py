"""The command `group-coordinator`; `python -m pipeline` is the same.

Exits 0 on success, 1 on a failure that it names in one line, 2 on a wrong call. What a verb needs
is imported when it runs: `simulate` and `sql` start in a blink because they start no JVM.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.cli.bench import bench_app
from pipeline.cli.groups import groups_app
from pipeline.cli.offsets import offsets_app
from pipeline.cli.options import Config, Json, Root, encoded, progress
from pipeline.cli.partitions import partitions_app
from pipeline.cli.records import records_app
from pipeline.cli.topics import topics_app
from pipeline.clock import clock_ms
from pipeline.errors import Failure

app = typer.Typer(
    name="group-coordinator",
    help="Kafka's consumer-group coordination for the lakehouse, on Spark and Delta.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(groups_app, name="groups")
app.add_typer(offsets_app, name="offsets")
app.add_typer(partitions_app, name="partitions")
app.add_typer(topics_app, name="topics")
app.add_typer(records_app, name="records")
app.add_typer(bench_app, name="bench")


@app.command()
def run(
    root: Root,
    config: Config = None,
    node_id: Annotated[
        int | None,
        typer.Option("--node-id", min=0, help="Which of several coordinators of the root it is."),
    ] = None,
) -> None:
    """Run the coordinator in the foreground, on a local Spark."""
    from pipeline.node.job import run as run_job
    from pipeline.settings import load_settings

    raise SystemExit(run_job(root, load_settings(config).with_node_id(node_id)))


@app.command()
def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Keep the tables in this folder.")
    ] = None,
) -> None:
    """See it work: recorded clients of a real broker, live, then workers that share a table."""
    from pipeline.replay.demo import run_demo

    if not run_demo(keep):
        raise Failure("not every request was answered, or not every row was put out, in time")


@app.command()
def simulate(
    file: Annotated[
        Path | None, typer.Argument(help="A scenario, one JSON object a line; default: stdin.")
    ] = None,
    config: Config = None,
) -> None:
    """Drive the coordinator's own state machine on a virtual clock, without Spark."""
    from coordinator.config import parse_config
    from pipeline.replay.simulate import simulate as run_scenario
    from pipeline.settings import read_user_file

    settings: dict[str, Any] = {"group.initial.rebalance.delay.ms": 0}
    if config is not None:
        settings |= read_user_file(config)["group"]
    parsed = parse_config(settings)
    if file is None:
        run_scenario(sys.stdin.buffer, sys.stdout.buffer, parsed)
    else:
        with file.open("rb") as lines:
            run_scenario(lines, sys.stdout.buffer, parsed)


@app.command()
def worker(
    root: Root,
    group: Annotated[str, typer.Option("--group", help="The group whose workers share the rows.")],
    topic: Annotated[str, typer.Option("--topic", help="The topic that has the partitions.")],
    table: Annotated[str, typer.Option("--table", help="The folder or URI of a Delta table.")],
    partition_by: Annotated[
        str, typer.Option("--partition-by", help="The column whose text decides the partition.")
    ],
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", min=1, help="Rows of the table in one batch.")
    ] = 1_000,
    exec_: Annotated[
        str | None,
        typer.Option("--exec", help="A shell command that takes each batch as JSON Lines."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End at the end of the table.")] = False,
    consumer_property: Annotated[
        list[str] | None,
        typer.Option("--consumer-property", help="One of Kafka's settings, as key=value."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Say what happens as JSON Lines.")] = False,
) -> None:
    """Work on a table's rows, shared by partition with the other workers of the group.

    The rows go to stdout as JSON Lines, or to a command; what happens is said on stderr. Every row
    is put out at least once.
    """
    from pipeline.client.worker import run_worker, to_command, to_stdout

    run_worker(
        root,
        group,
        topic,
        table,
        partition_by,
        output=to_stdout if exec_ is None else to_command(exec_),
        batch_rows=batch_rows,
        once=once,
        settings=_properties(consumer_property or []),
        tell=lambda said: progress(encoded(said) if json else said.line()),
    )


def _properties(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--consumer-property {text!r} is not key=value")
        found[key] = value
    return found


@app.command("compact")
def compact_topic(
    root: Root,
    config: Config = None,
    force: Annotated[bool, typer.Option("--force", help="Whatever share is dirty.")] = False,
    json: Json = False,
) -> None:
    """Compact the closed segments of the offsets topic, as Kafka's log cleaner does."""
    from pipeline.settings import load_settings
    from pipeline.upkeep.compaction import compact

    result = compact(root, load_settings(config).upkeep, clock_ms(), progress, force)
    typer.echo(encoded(result) if json else result.line())


@app.command("retain")
def retain_tables(root: Root, config: Config = None, json: Json = False) -> None:
    """Drop what is past its retention from the other tables, and pack and vacuum them all."""
    from pipeline.settings import load_settings
    from pipeline.upkeep.retention import retain

    results = retain(root, load_settings(config).upkeep, clock_ms(), progress)
    if not results:
        raise Failure(f"no tables under {root}")
    for result in results:
        typer.echo(encoded(result) if json else result.line())
    failed = [result.table for result in results if result.failure is not None]
    if failed:
        raise Failure(f"left as they were then: {', '.join(failed)}")


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="A query over the tables and views.")],
    root: Root,
    format_: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
) -> None:
    """Ask the tables and views of a root, on the spot."""
    from pipeline.cli.show import Format, show
    from pipeline.tables.sql import Catalog

    try:
        chosen = Format(format_)
    except ValueError as error:
        raise typer.BadParameter(f"{format_!r} is none of table, csv, json") from error
    show(Catalog(root).query(query), chosen)


def main() -> None:
    """Run the command line."""
    from deltalake.exceptions import DeltaError

    from coordinator.config import ConfigError
    from coordinator.consumer.errors import ConsumerError

    try:
        app()
    except (Failure, ConfigError, ConsumerError, DeltaError, OSError) as error:
        sys.exit(f"group-coordinator: {error}")
