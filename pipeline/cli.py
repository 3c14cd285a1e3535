"""The command `group-coordinator`; `python -m pipeline` is the same.

Exits 0 on success, 1 on a failure that it names in one line, 2 on a wrong call. What a verb needs
is imported when it runs: `simulate` and `sql` start in a blink because they start no JVM.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pipeline.clock import clock_ms
from pipeline.errors import Failure

if TYPE_CHECKING:
    from pipeline.admin import Change
    from pipeline.records_io import Tally
    from pipeline.sql import Result

app = typer.Typer(
    name="group-coordinator",
    help="Kafka's consumer-group coordination for the lakehouse, on Spark and Delta.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
groups_app = typer.Typer(help="Consumer groups.", no_args_is_help=True)
offsets_app = typer.Typer(help="Committed offsets.", no_args_is_help=True)
topics_app = typer.Typer(help="The catalogue of topics.", no_args_is_help=True)
records_app = typer.Typer(
    help="The offsets topic as Kafka's own binary records.", no_args_is_help=True
)
app.add_typer(records_app, name="records")
bench_app = typer.Typer(help="Benchmarks, each beside its floor.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")
app.add_typer(groups_app, name="groups")
partitions_app = typer.Typer(
    help="Offsets partitions and the coordinators that own them.", no_args_is_help=True
)
app.add_typer(partitions_app, name="partitions")
app.add_typer(offsets_app, name="offsets")
app.add_typer(topics_app, name="topics")

Root = Annotated[str, typer.Option("--root", help="The folder or URI under which the tables lie.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="A TOML file whose settings go over conf/coordinator.toml."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON Lines.")]


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
    from pipeline.job import run as run_job
    from pipeline.settings import load_settings

    raise SystemExit(run_job(root, load_settings(config).with_node_id(node_id)))


@app.command()
def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Keep the tables in this folder.")
    ] = None,
) -> None:
    """See it work: recorded clients of a real broker, live, from nothing to a result."""
    from pipeline.demo import run_demo

    if not run_demo(keep):
        raise Failure("not every request was answered in time")


@app.command()
def simulate(
    file: Annotated[
        Path | None, typer.Argument(help="A scenario, one JSON object a line; default: stdin.")
    ] = None,
    config: Config = None,
) -> None:
    """Drive the coordinator's own state machine on a virtual clock, without Spark."""
    from coordinator.config import parse_config
    from pipeline.settings import read_user_file
    from pipeline.simulate import simulate as run_scenario

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
    from pipeline.worker import run_worker, to_command, to_stdout

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
        tell=lambda said: _progress(_encoded(said) if json else said.line()),
    )


def _properties(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--consumer-property {text!r} is not key=value")
        found[key] = value
    return found


@bench_app.command("answer")
def bench_answer(
    seconds: Annotated[float, typer.Option(help="How long each machine is measured, s.")] = 30.0,
    rounds: Annotated[int, typer.Option(help="How often the two take turns.")] = 2,
    json: Json = False,
) -> None:
    """Answer times, p50 and p99, beside an empty function with the same sources and sinks."""
    from pipeline.bench.answer import bench_answer as measure
    from pipeline.bench.report import show_answer

    show_answer(measure(seconds, rounds, lambda text: typer.echo(text, err=True)), json)


KafkaLibs = Annotated[
    Path | None,
    typer.Option(
        "--kafka-libs",
        envvar="GROUP_COORDINATOR_KAFKA_LIBS",
        help="A folder with Kafka's jars, to measure its broker too; an empty one is filled.",
    ),
]


@bench_app.command("throughput")
def bench_of_throughput(
    seconds: Annotated[float, typer.Option(help="How long each machine is measured, s.")] = 60.0,
    groups: Annotated[int, typer.Option(help="Groups.")] = 100,
    members: Annotated[int, typer.Option(help="Members of each group.")] = 100,
    kafka_libs: KafkaLibs = None,
    json: Json = False,
) -> None:
    """Heartbeats a second, beside an empty function on Spark and beside Kafka's broker."""
    from pipeline.bench.report import show_throughput
    from pipeline.bench.throughput import bench_throughput

    report = bench_throughput(seconds, kafka_libs, _progress, groups=groups, members=members)
    show_throughput(report, json)


@bench_app.command("rebalance")
def bench_of_rebalance(
    rounds: Annotated[int, typer.Option(help="Groups of each machine that count.")] = 5,
    kafka_libs: KafkaLibs = None,
    json: Json = False,
) -> None:
    """How long 100 members take to be Stable, and one more, beside Kafka's broker."""
    from pipeline.bench.rebalance import bench_rebalance
    from pipeline.bench.report import show_rebalance

    show_rebalance(bench_rebalance(rounds, kafka_libs, _progress), json)


@bench_app.command("machine")
def bench_of_machine(
    batches: Annotated[int, typer.Option(help="Batches that count, of each load.")] = 5,
    scale: Annotated[int, typer.Option(help="Divide the number of groups by this.")] = 1,
    json: Json = False,
) -> None:
    """Requests a second through the pure machine, beside decoding and encoding alone."""
    from pipeline.bench.machine import bench_machine
    from pipeline.bench.report import show_machine

    show_machine(bench_machine(batches, scale, _progress), json)


@bench_app.command("commit")
def bench_of_commit(
    batches: Annotated[int, typer.Option(help="Batches that count, of each size.")] = 300,
    json: Json = False,
) -> None:
    """Commits a second through the pure machine, by what the group holds already."""
    from pipeline.bench.commit import bench_commit
    from pipeline.bench.report import show_commit

    show_commit(bench_commit(batches, _progress), json)


@bench_app.command("producer")
def bench_of_producer(
    seconds: Annotated[float, typer.Option(help="How long each linger.ms is paced, s.")] = 10.0,
    in_flight: Annotated[int, typer.Option(help="Commits under way at once.")] = 1,
    json: Json = False,
) -> None:
    """Requests/s and acknowledgement times against linger.ms, beside bare appends of the same."""
    from pipeline.bench.producer import bench_producer, show_producer

    show_producer(bench_producer(seconds, _progress, in_flight=in_flight), json)


@app.command("compact")
def compact_topic(
    root: Root,
    config: Config = None,
    force: Annotated[bool, typer.Option("--force", help="Whatever share is dirty.")] = False,
    json: Json = False,
) -> None:
    """Compact the closed segments of the offsets topic, as Kafka's log cleaner does."""
    from pipeline.compaction import compact
    from pipeline.settings import load_settings

    result = compact(root, load_settings(config).upkeep, clock_ms(), _progress, force)
    typer.echo(_encoded(result) if json else result.line())


@app.command("retain")
def retain_tables(root: Root, config: Config = None, json: Json = False) -> None:
    """Drop what is past its retention from the other tables, and pack and vacuum them all."""
    from pipeline.retention import retain
    from pipeline.settings import load_settings

    results = retain(root, load_settings(config).upkeep, clock_ms(), _progress)
    if not results:
        raise Failure(f"no tables under {root}")
    for result in results:
        typer.echo(_encoded(result) if json else result.line())
    failed = [result.table for result in results if result.failure is not None]
    if failed:
        raise Failure(f"left as they were then: {', '.join(failed)}")


@bench_app.command("compaction")
def bench_of_compaction(
    records: Annotated[int, typer.Option(help="Records of the log.")] = 10_000_000,
    keys: Annotated[int, typer.Option(help="Keys among them.")] = 1_000_000,
    json: Json = False,
) -> None:
    """Compaction, beside Spark reading and writing the same rows."""
    from pipeline.bench.compaction import bench_compaction
    from pipeline.bench.report import show_compaction

    show_compaction(bench_compaction(records, keys, _progress), json)


@bench_app.command("take-over")
def bench_of_take_over(
    records: Annotated[int, typer.Option(help="Records of the offsets topic.")] = 1_000_000,
    groups: Annotated[int, typer.Option(help="Groups among them.")] = 10_000,
    json: Json = False,
) -> None:
    """A start without a checkpoint, beside Spark starting, reading and grouping the same rows."""
    from pipeline.bench.report import show_take_over
    from pipeline.bench.take_over import bench_take_over

    show_take_over(bench_take_over(records, groups, _progress), json)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="A query over the tables and views.")],
    root: Root,
    format_: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
) -> None:
    """Ask the tables and views of a root, on the spot."""
    from pipeline.show import Format, show
    from pipeline.sql import Catalog

    try:
        chosen = Format(format_)
    except ValueError as error:
        raise typer.BadParameter(f"{format_!r} is none of table, csv, json") from error
    show(Catalog(root).query(query), chosen)


@groups_app.command("list")
def groups_list(root: Root, json: Json = False) -> None:
    """Every group, its state and its numbers."""
    _show(
        root,
        "SELECT group_id, state, protocol_type, protocol, generation, num_members, num_offsets, "
        "since, reason FROM groups ORDER BY group_id",
        json,
    )


@groups_app.command("describe")
def groups_describe(group: str, root: Root, json: Json = False) -> None:
    """One group: its state and the members of its last stored generation."""
    found = _show(root, "SELECT * FROM groups WHERE group_id = ?", json, group)
    if not found.rows:
        raise Failure(f"there is no group {group!r} under {root}")
    _show(root, "SELECT * EXCLUDE group_id FROM group_members WHERE group_id = ?", json, group)


@groups_app.command("delete")
def groups_delete(group: str, root: Root) -> None:
    """Delete an Empty group and its offsets, through the running coordinator."""
    from pipeline.admin import delete_group

    delete_group(root, group)
    typer.echo(f"group {group!r} deleted")


@partitions_app.command("list")
def partitions_list(root: Root, json: Json = False) -> None:
    """Every offsets partition, the node that owns it, and whether that node is alive."""
    from pipeline.partitions import list_partitions, open_ledger
    from pipeline.show import show_structs

    show_structs(list_partitions(open_ledger(root)), json)


@partitions_app.command("move")
def partitions_move(
    partition: int,
    root: Root,
    to: Annotated[int | None, typer.Option("--to", help="The node that shall own it.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take a pending move back.")] = False,
    timeout: Annotated[float, typer.Option(help="How long to wait for it, s; 0: not.")] = 60.0,
) -> None:
    """Move a partition to another node, or take the move back before it has begun."""
    from pipeline import partitions

    if cancel == (to is not None):
        raise typer.BadParameter("either --to NODE or --cancel")
    ledger = partitions.open_ledger(root)
    if to is None:
        partitions.cancel(ledger, partition)
        typer.echo(f"the move of partition {partition} is cancelled")
        return
    partitions.move(ledger, partition, to)
    if not timeout:
        typer.echo(f"partition {partition} is to move to node {to}")
        return
    partitions.await_move(ledger, partition, to, timeout, _progress)
    typer.echo(f"partition {partition} is at node {to}")


Topics = Annotated[
    list[str] | None, typer.Option("--topic", help="Only this topic; may be repeated.")
]
Execute = Annotated[
    bool, typer.Option("--execute", help="Do it; without this, only show what would change.")
]


@offsets_app.command("reset")
def offsets_reset(
    group: str,
    root: Root,
    topic: Topics = None,
    to_offset: Annotated[int | None, typer.Option(help="The offset to go to.")] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="How many offsets to go on, or back.")
    ] = None,
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Put an Empty group's committed offsets elsewhere, through the running coordinator."""
    from pipeline.admin import plan_reset

    _change(root, group, plan_reset(root, group, topic or [], to_offset, shift_by), execute, json)


@offsets_app.command("undo")
def offsets_undo(group: str, root: Root, execute: Execute = False, json: Json = False) -> None:
    """Put the committed offsets back to what they were before the last reset."""
    from pipeline.admin import plan_undo

    _change(root, group, plan_undo(root, group), execute, json)


@offsets_app.command("delete")
def offsets_delete(
    group: str, root: Root, topic: Topics = None, execute: Execute = False, json: Json = False
) -> None:
    """Delete committed offsets of topics that no member consumes."""
    from pipeline.admin import plan_deletion

    _change(root, group, plan_deletion(root, group, topic or []), execute, json)


def _change(root: str, group: str, changes: list[Change], execute: bool, json: bool) -> None:
    from pipeline.admin import carry_out
    from pipeline.show import Format, show
    from pipeline.sql import Result

    rows = [(c.topic, c.partition, c.current, c.wanted) for c in changes]
    result = Result(["topic", "partition", "current", "wanted"], rows)
    show(result, Format.JSON if json else Format.TABLE)
    if execute and changes:
        carry_out(root, group, changes)
        typer.echo(f"{len(changes)} offsets of group {group!r} changed", err=True)
    elif changes:
        typer.echo("nothing was changed: add --execute to do it", err=True)


@offsets_app.command("show")
def offsets_show(group: str, root: Root, json: Json = False) -> None:
    """The committed offsets of one group."""
    _show(
        root,
        'SELECT topic, "partition", committed_offset, metadata, committed_at, expires_at, reason '
        'FROM committed_offsets WHERE group_id = ? ORDER BY topic, "partition"',
        json,
        group,
    )


Partitions = Annotated[int, typer.Option("--partitions", help="How many partitions it has.")]


@topics_app.command("create")
def topics_create(name: str, root: Root, partitions: Partitions) -> None:
    """Create a topic; the first one makes the catalogue, outside of which no topic is taken."""
    from pipeline.topics import create_topic

    create_topic(root, name, partitions)
    typer.echo(f"topic {name!r} created with {_counted(partitions)}")


@topics_app.command("alter")
def topics_alter(name: str, root: Root, partitions: Partitions) -> None:
    """Give a topic more partitions."""
    from pipeline.topics import alter_topic

    alter_topic(root, name, partitions)
    typer.echo(f"topic {name!r} has {_counted(partitions)}")


@topics_app.command("list")
def topics_list(root: Root, json: Json = False) -> None:
    """Every topic of the catalogue and its number of partitions."""
    from pipeline.topics import has_catalogue

    _show(root, "SELECT * FROM topics ORDER BY topic", json)
    if not has_catalogue(root):
        typer.echo("there is no catalogue: every topic is taken", err=True)


@topics_app.command("delete")
def topics_delete(name: str, root: Root) -> None:
    """Take a topic out of the catalogue; the offsets committed for it stay."""
    from pipeline.topics import delete_topic

    delete_topic(root, name)
    typer.echo(f"topic {name!r} deleted")


def _counted(partitions: int) -> str:
    return f"{partitions} partition{'' if partitions == 1 else 's'}"


@records_app.command("export")
def records_export(
    root: Root,
    file: Annotated[
        str, typer.Argument(help="A .jsonl or .parquet file to write; - is stdout, JSON Lines.")
    ] = "-",
    json: Json = False,
) -> None:
    """Write the offsets topic as Kafka's binary keys and values, in the order of its log."""
    from pipeline.records_io import export

    tally = export(root, file, lambda text: typer.echo(text, err=True))
    # Where the records themselves go to stdout, what is said of them does not.
    _show_tally("exported", tally, json, err=file == "-")


@records_app.command("import")
def records_import(
    file: Annotated[
        str,
        typer.Argument(
            help="A .jsonl or .parquet file, or a folder of .parquet files; - is stdin, JSON Lines."
        ),
    ],
    root: Root,
    config: Config = None,
    again: Annotated[
        bool, typer.Option("--again", help="Import also what was imported before.")
    ] = False,
    json: Json = False,
) -> None:
    """Append Kafka's binary records to the offsets topic.

    Running coordinators give their partitions up meanwhile, and requests wait. An import that was
    interrupted is completed by running it again; a completed one is not repeated unless --again is
    given.
    """
    from pipeline.records_io import import_
    from pipeline.settings import load_settings

    tally = import_(
        root, file, load_settings(config), again, lambda text: typer.echo(text, err=True)
    )
    note = f", {tally.repeated} were there already" if tally.repeated else ""
    _show_tally("imported", tally, json, note)


def _show_tally(verb: str, tally: Tally, json: bool, note: str = "", err: bool = False) -> None:
    for name in tally.named:
        typer.echo(f"skipped {name}", err=True)
    text = msgspec.json.encode(tally).decode() if json else f"{verb} {tally}{note}"
    typer.echo(text, err=err)


def _progress(text: str) -> None:
    typer.echo(text, err=True)


def _encoded(result: Any) -> str:
    return msgspec.json.encode(result).decode()


def _show(root: str, query: str, json: bool, *parameters: Any) -> Result:
    from pipeline.show import Format, show
    from pipeline.sql import Catalog

    result = Catalog(root).query(query, list(parameters))
    show(result, Format.JSON if json else Format.TABLE)
    return result


def main() -> None:
    """Run the command line."""
    from deltalake.exceptions import DeltaError

    from coordinator.config import ConfigError
    from coordinator.consumer.errors import ConsumerError

    try:
        app()
    except (Failure, ConfigError, ConsumerError, DeltaError, OSError) as error:
        sys.exit(f"group-coordinator: {error}")
