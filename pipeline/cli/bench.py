"""`bench`: each benchmark beside its floor."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from group_coordinator.pipeline.cli.options import Json, encoded, progress
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import interrupted_by_signals
from group_coordinator.pipeline.terminal import grid, open_console

if TYPE_CHECKING:
    from group_coordinator.pipeline.bench.report import Report

PACKAGE = "group_coordinator.pipeline.bench"

bench_app = typer.Typer(help="Benchmarks, each beside its floor. They are run from a clone.")

WarmUp = Annotated[float, typer.Option(help="How long each runs before it is measured, s.")]
Root = Annotated[
    str | None, typer.Option(help="Where the tables lie, and stay; else a temporary folder.")
]

KafkaLibs = Annotated[
    Path | None,
    typer.Option(
        "--kafka-libs",
        envvar="GROUP_COORDINATOR_KAFKA_LIBS",
        help="A folder with Kafka's jars, to measure its broker too; an empty one is filled.",
    ),
]


@bench_app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Raise Failure where the benchmarks are not installed; print the help without a command."""
    if find_spec(PACKAGE) is None:
        raise Failure(
            "the benchmarks are not in the installed package: "
            "run them from a clone of the repository, after `pip install -e .` in it"
        )
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        return
    # Of a benchmark that is told to end, no coordinator may go on beside what is measured next.
    context.with_resource(interrupted_by_signals())


def show(report: Report, json: bool) -> None:
    """Print a benchmark's report as a table, or as one JSON object."""
    if json:
        typer.echo(encoded(report))
        return
    table = report.table()
    open_console().print(grid(table.columns, table.rows, report.title()))


@bench_app.command("answer")
def bench_of_answer(
    seconds: Annotated[float, typer.Option(help="How long a turn of each machine is, s.")] = 20.0,
    rounds: Annotated[int, typer.Option(help="How often the two take turns.")] = 6,
    warm_up: WarmUp = 120.0,
    root: Root = None,
    json: Json = False,
) -> None:
    """Answer times, p50 and p99, beside an empty function with the same sources and sinks."""
    from group_coordinator.pipeline.bench.answer import bench_answer

    show(bench_answer(seconds, rounds, progress, warm_up, root), json)


@bench_app.command("linger")
def bench_of_linger(
    seconds: Annotated[float, typer.Option(help="How long each linger is measured, s.")] = 30.0,
    warm_up: WarmUp = 120.0,
    json: Json = False,
) -> None:
    """Answer times against the producer's linger.ms."""
    from group_coordinator.pipeline.bench.linger import bench_linger

    show(bench_linger(seconds, progress, warm_up), json)


@bench_app.command("throughput")
def bench_of_throughput(
    seconds: Annotated[float, typer.Option(help="How long each machine is measured, s.")] = 60.0,
    groups: Annotated[int, typer.Option(help="Groups.")] = 100,
    members: Annotated[int, typer.Option(help="Members of each group.")] = 100,
    warm_up: WarmUp = 60.0,
    kafka_libs: KafkaLibs = None,
    json: Json = False,
) -> None:
    """Heartbeats a second, beside an empty function on Spark and beside Kafka's broker."""
    from group_coordinator.pipeline.bench.throughput import bench_throughput

    report = bench_throughput(seconds, kafka_libs, progress, warm_up, groups, members)
    show(report, json)


@bench_app.command("gateway")
def bench_of_gateway(
    seconds: Annotated[float, typer.Option(help="How long each turn is measured, s.")] = 20.0,
    rounds: Annotated[int, typer.Option(help="How often rows and sockets take turns.")] = 3,
    records: Annotated[int, typer.Option(help="Rows of 100 bytes to consume.")] = 1_000_000,
    most: Annotated[int, typer.Option(min=100, help="The most members to try.")] = 1_000_000,
    warm_up: WarmUp = 120.0,
    kafka_libs: KafkaLibs = None,
    json: Json = False,
) -> None:
    """Through a gateway: answer time, members held, records/s, beside Kafka's broker."""
    from group_coordinator.pipeline.bench.gateway import Load, bench_gateway

    load = Load(warm_up=warm_up, seconds=seconds, rounds=rounds, records=records, most=most)
    show(bench_gateway(load, kafka_libs, progress), json)


@bench_app.command("held")
def bench_of_held(
    heartbeats: Annotated[
        list[float] | None,
        typer.Option("--heartbeat", help="Their interval, s; may be repeated. 3, 10 and 30."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long so many are measured, s.")] = 20.0,
    step: Annotated[int, typer.Option(min=100, help="How many members more at a time.")] = 10_000,
    most: Annotated[int, typer.Option(min=100, help="The most members to try.")] = 1_000_000,
    warm_up: WarmUp = 120.0,
    json: Json = False,
) -> None:
    """How many members one root holds, by how often they heartbeat."""
    from group_coordinator.pipeline.bench.held import HEARTBEATS_S, HeldLoad, bench_held

    loads = [HeldLoad(each, step, most, seconds) for each in heartbeats or HEARTBEATS_S]
    show(bench_held(loads, warm_up, progress), json)


@bench_app.command("rebalance")
def bench_of_rebalance(
    rounds: Annotated[int, typer.Option(help="Groups of each machine that count.")] = 5,
    members: Annotated[int, typer.Option(help="Members of each group.")] = 100,
    kafka_libs: KafkaLibs = None,
    json: Json = False,
) -> None:
    """How long 100 members take to be Stable, and one more, beside Kafka's broker."""
    from group_coordinator.pipeline.bench.rebalance import bench_rebalance

    show(bench_rebalance(rounds, kafka_libs, progress, members), json)


@bench_app.command("machine")
def bench_of_machine(
    batches: Annotated[int, typer.Option(help="Batches that count, of each load.")] = 5,
    scale: Annotated[int, typer.Option(help="Divide the number of groups by this.")] = 1,
    json: Json = False,
) -> None:
    """Requests a second through the pure machine, beside decoding and encoding alone."""
    from group_coordinator.pipeline.bench.machine import bench_machine

    show(bench_machine(batches, scale, progress), json)


@bench_app.command("commit")
def bench_of_commit(
    batches: Annotated[int, typer.Option(help="Batches that count, of each size.")] = 300,
    json: Json = False,
) -> None:
    """Commits a second through the pure machine, by what the group holds already."""
    from group_coordinator.pipeline.bench.commit import bench_commit

    show(bench_commit(batches, progress), json)


@bench_app.command("producer")
def bench_of_producer(
    seconds: Annotated[float, typer.Option(help="How long each linger.ms is paced, s.")] = 10.0,
    in_flight: Annotated[int, typer.Option(help="Commits under way at once.")] = 1,
    json: Json = False,
) -> None:
    """Requests/s and acknowledgement times against linger.ms, beside bare appends of the same."""
    from group_coordinator.pipeline.bench.producer import bench_producer

    show(bench_producer(seconds, progress, in_flight=in_flight), json)


@bench_app.command("compaction")
def bench_of_compaction(
    records: Annotated[int, typer.Option(help="Records of the log.")] = 10_000_000,
    keys: Annotated[int, typer.Option(help="Keys among them.")] = 1_000_000,
    json: Json = False,
) -> None:
    """Compaction, beside Spark reading and writing the same rows."""
    from group_coordinator.pipeline.bench.compaction import bench_compaction

    show(bench_compaction(records, keys, progress), json)


@bench_app.command("start")
def bench_of_start(
    rounds: Annotated[int, typer.Option(help="Starts of each machine.")] = 5,
    json: Json = False,
) -> None:
    """How long a start takes until `ready`, beside Spark's own start."""
    from group_coordinator.pipeline.bench.start import bench_start

    show(bench_start(rounds, progress), json)


@bench_app.command("take-over")
def bench_of_take_over(
    records: Annotated[int, typer.Option(help="Records of the offsets topic.")] = 1_000_000,
    groups: Annotated[int, typer.Option(help="Groups among them.")] = 10_000,
    json: Json = False,
) -> None:
    """A start without a checkpoint, beside Spark starting, reading and grouping the same rows."""
    from group_coordinator.pipeline.bench.take_over import bench_take_over

    show(bench_take_over(records, groups, progress), json)


@bench_app.command("groups")
def bench_of_groups(
    rounds: Annotated[int, typer.Option(help="How often the two take turns.")] = 3,
    groups: Annotated[int, typer.Option(help="Groups with a request in each batch.")] = 2_000,
    batches: Annotated[int, typer.Option(help="Batches of a turn.")] = 15,
    json: Json = False,
) -> None:
    """What a batch of very many groups takes, beside the empty function."""
    from group_coordinator.pipeline.bench.groups import bench_groups

    show(bench_groups(rounds, progress, groups, batches), json)


@bench_app.command("idle")
def bench_of_idle(
    rounds: Annotated[int, typer.Option(help="How often the cases take turns.")] = 3,
    idle: Annotated[
        list[int] | None,
        typer.Option("--idle", help="Idle groups; may be repeated. 1,000, 10,000 and 100,000."),
    ] = None,
    batches: Annotated[int, typer.Option(help="Batches of a turn.")] = 20,
    state_store: Annotated[str, typer.Option(help="rocksdb or memory.")] = "rocksdb",
    json: Json = False,
) -> None:
    """What idle groups add to a batch, beside the empty function."""
    from group_coordinator.pipeline.bench.idle import IDLE, bench_idle

    show(bench_idle(rounds, progress, idle or IDLE, batches, state_store), json)


@bench_app.command("nodes")
def bench_of_nodes(
    seconds: Annotated[float, typer.Option(help="How long each is measured in a round.")] = 60.0,
    nodes: Annotated[
        list[int] | None,
        typer.Option("--nodes", help="Coordinators of the root; may be repeated. 1, 2 and 4."),
    ] = None,
    groups: Annotated[int, typer.Option(help="Groups of 2 members.")] = 100,
    warm_up: WarmUp = 900.0,
    rounds: Annotated[int, typer.Option(help="How often the numbers of nodes take turns.")] = 3,
    json: Json = False,
) -> None:
    """CPU a request and answer time of several coordinators of one root, beside the floor."""
    from group_coordinator.pipeline.bench.nodes import NODES, bench_nodes

    show(bench_nodes(seconds, progress, nodes or NODES, groups, warm_up, rounds), json)


@bench_app.command("reading")
def bench_of_reading(json: Json = False) -> None:
    """CPU of reading the requests, of one node and of four, by the shape of commits."""
    from group_coordinator.pipeline.bench.reading import bench_reading

    show(bench_reading(progress), json)


@bench_app.command("moves")
def bench_of_moves(
    seconds: Annotated[float, typer.Option(help="How long a window with a move is, s.")] = 8.0,
    restart_seconds: Annotated[
        float, typer.Option(help="How long a window with a start is, s.")
    ] = 30.0,
    windows: Annotated[int, typer.Option(help="Pairs of windows of each kind.")] = 6,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", help="moves, restart or kill; may be repeated. All of them."),
    ] = None,
    groups: Annotated[int, typer.Option(help="Groups of one member.")] = 100,
    warm_up: WarmUp = 120.0,
    root: Root = None,
    json: Json = False,
) -> None:
    """What a move and a restart cost the other groups, beside windows without."""
    from group_coordinator.pipeline.bench.moves import KINDS, bench_moves

    for kind in kinds or ():
        if kind not in KINDS:
            raise typer.BadParameter(f"{kind} is none of {', '.join(KINDS)}")
    asked = kinds or tuple(KINDS)
    report = bench_moves(seconds, restart_seconds, windows, progress, asked, groups, warm_up, root)
    show(report, json)


@bench_app.command("limits")
def bench_of_limits(
    seconds: Annotated[float, typer.Option(help="How long each is measured.")] = 10.0,
    writers: Annotated[
        list[int] | None,
        typer.Option("--writers", help="Writers of the table; may be repeated. 1, 2, 4 and 8."),
    ] = None,
    root: Annotated[str | None, typer.Option(help="Where the table lies, and stays.")] = None,
    rows: Annotated[int, typer.Option(help="Requests of a commit.")] = 100,
    json: Json = False,
) -> None:
    """How many commits a second one table takes."""
    from group_coordinator.pipeline.bench.limits import WRITERS, bench_limits

    show(bench_limits(seconds, progress, writers or WRITERS, root, rows), json)


@bench_app.command("size")
def bench_of_size(
    members: Annotated[int, typer.Option(help="Members of all groups.")] = 1_000_000,
    json: Json = False,
) -> None:
    """What a number of members takes on paper, by what was measured."""
    from group_coordinator.pipeline.bench.size import bench_size

    show(bench_size(members), json)


@bench_app.command("verbs")
def bench_of_verbs(
    groups: Annotated[int, typer.Option(help="Groups of the root.")] = 1_000,
    partitions: Annotated[int, typer.Option(help="Partitions that each has committed.")] = 10,
    runs: Annotated[int, typer.Option(help="How often each is run; the fastest counts.")] = 5,
    kafka_libs: KafkaLibs = None,
    json: Json = False,
) -> None:
    """How long verbs take, the whole process, beside Kafka's tool."""
    from group_coordinator.pipeline.bench.verbs import bench_verbs

    show(bench_verbs(groups, partitions, runs, kafka_libs, progress), json)


@bench_app.command("soak")
def bench_of_soak(
    minutes: Annotated[float, typer.Option(help="How long it runs after the warm-up.")] = 30.0,
    warm_up: WarmUp = 120.0,
    json: Json = False,
) -> None:
    """Whether answer times, memory and files stay what they were, for half an hour."""
    from group_coordinator.pipeline.bench.soak import bench_soak

    show(bench_soak(minutes, progress, warm_up), json)


@bench_app.command("all")
def bench_of_all(
    page: Annotated[Path, typer.Option("--page", help="The Markdown page to write.")] = Path(
        "benchmarks.md"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Each as small as it runs.")] = False,
    kafka_libs: KafkaLibs = None,
    json: Json = False,
) -> None:
    """Run every benchmark, and write one page with what they found: takes an hour and a half."""
    from group_coordinator.pipeline.bench.everything import bench_all, failed

    run = bench_all(page, quick, progress, kafka_libs)
    typer.echo(encoded(run) if json else f"written to {page}")
    if names := failed(run):
        raise Failure(f"{len(names)} of {len(run.sections)} failed: {'; '.join(names)}")
