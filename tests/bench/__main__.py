"""The command `python -m tests.bench`: each benchmark, compared with its floor."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from group_coordinator.pipeline.cli.options import Json, print_progress
from group_coordinator.pipeline.cli.printing import to_json_line
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.terminal import grid, open_console
from tests.support.command import run_command
from tests.support.kept import keep

if TYPE_CHECKING:
    from tests.bench.report import Report

NAME = "python -m tests.bench"

bench_app = typer.Typer(
    help="Benchmarks, each beside its floor.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

WarmUp = Annotated[float, typer.Option(help="How long each runs before it is measured, s.")]
Root = Annotated[
    str | None, typer.Option(help="Where the tables lie, and stay; else a temporary folder.")
]

Record = Annotated[
    bool, typer.Option("--record", help="Keep the report in the project, and render the pages.")
]

KafkaLibs = Annotated[
    Path | None,
    typer.Option(
        "--kafka-libs",
        envvar="GROUP_COORDINATOR_KAFKA_LIBS",
        help="A folder with Kafka's jars, to measure its broker too; an empty one is filled.",
    ),
]


def show(name: str, report: Report, json: bool, record: bool) -> None:
    """Print a benchmark's report as a table, or as one JSON object; keep it if it is to be kept."""
    if json:
        typer.echo(to_json_line(report))
    else:
        table = report.table()
        open_console().print(grid(table.columns, table.rows, report.title()))
    if record:
        from tests.bench.page import RESULTS, write_pages

        keep(RESULTS, name, f"{NAME} {shlex.join(sys.argv[1:])}", report)
        write_pages()


@bench_app.command("answer")
def bench_of_answer(
    seconds: Annotated[float, typer.Option(help="How long a turn of each machine is, s.")] = 20.0,
    rounds: Annotated[int, typer.Option(help="How often the two take turns.")] = 6,
    warm_up: WarmUp = 120.0,
    root: Root = None,
    json: Json = False,
    record: Record = False,
) -> None:
    """Response times, p50 and p99, compared with an empty function in the same job."""
    from tests.bench.answer import bench_answer

    show("answer", bench_answer(seconds, rounds, print_progress, warm_up, root), json, record)


@bench_app.command("gateway")
def bench_of_gateway(
    seconds: Annotated[float, typer.Option(help="How long each turn is measured, s.")] = 20.0,
    rounds: Annotated[int, typer.Option(help="How often rows and sockets take turns.")] = 3,
    records: Annotated[int, typer.Option(help="Rows of 100 bytes to consume.")] = 1_000_000,
    most: Annotated[int, typer.Option(min=100, help="The most members to try.")] = 1_000_000,
    warm_up: WarmUp = 120.0,
    kafka_libs: KafkaLibs = None,
    json: Json = False,
    record: Record = False,
) -> None:
    """Response time, members held and records/s of a gateway, compared with Kafka's broker."""
    from tests.bench.gateway import Load, bench_gateway

    load = Load(warm_up=warm_up, seconds=seconds, rounds=rounds, records=records, most=most)
    show("gateway", bench_gateway(load, kafka_libs, print_progress), json, record)


@bench_app.command("produce")
def bench_of_produce(
    records: Annotated[int, typer.Option(min=8, help="Records of 100 bytes.")] = 1_000_000,
    sizes: Annotated[
        list[int] | None, typer.Option("--bytes", help="Of values; may be repeated. 100 and 1000.")
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partitions", help="May be repeated. 1, 6 and 50.")
    ] = None,
    processes: Annotated[
        list[int] | None, typer.Option("--processes", help="May be repeated. 1 and 8.")
    ] = None,
    ways: Annotated[
        list[str] | None,
        typer.Option("--way", help="send, send_table, delta-rs or gateway; may be repeated."),
    ] = None,
    json: Json = False,
    record: Record = False,
) -> None:
    """Records written a second: a producer's, a C client's through a gateway, and delta-rs's."""
    from tests.bench.produce import PARTITIONS, PROCESSES, SIZES, WAYS, Load, bench_produce

    for way in ways or ():
        if way not in WAYS:
            raise typer.BadParameter(f"{way} is none of {', '.join(WAYS)}")
    load = Load(
        records, sizes or SIZES, partitions or PARTITIONS, processes or PROCESSES, ways or WAYS
    )
    show("produce", bench_produce(load, print_progress), json, record)


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
    record: Record = False,
) -> None:
    """Number of members that a root holds, by the heartbeat interval."""
    from tests.bench.held import HEARTBEATS_S, HeldLoad, bench_held

    loads = [HeldLoad(each, step, most, seconds) for each in heartbeats or HEARTBEATS_S]
    show("held", bench_held(loads, warm_up, print_progress), json, record)


@bench_app.command("rebalance")
def bench_of_rebalance(
    rounds: Annotated[int, typer.Option(help="Groups of each machine that count.")] = 5,
    members: Annotated[int, typer.Option(help="Members of each group.")] = 100,
    kafka_libs: KafkaLibs = None,
    json: Json = False,
    record: Record = False,
) -> None:
    """Time until 100 members are Stable, and one more, compared with Kafka's broker."""
    from tests.bench.rebalance import bench_rebalance

    show("rebalance", bench_rebalance(rounds, kafka_libs, print_progress, members), json, record)


@bench_app.command("machine")
def bench_of_machine(
    batches: Annotated[int, typer.Option(help="Batches that count, of each load.")] = 5,
    scale: Annotated[int, typer.Option(help="Divide the number of groups by this.")] = 1,
    json: Json = False,
    record: Record = False,
) -> None:
    """Requests a second of the pure state machine, compared with decoding and encoding alone."""
    from tests.bench.machine import bench_machine

    show("machine", bench_machine(batches, scale, print_progress), json, record)


@bench_app.command("compaction")
def bench_of_compaction(
    records: Annotated[int, typer.Option(help="Records of the log.")] = 10_000_000,
    keys: Annotated[int, typer.Option(help="Keys among them.")] = 1_000_000,
    json: Json = False,
    record: Record = False,
) -> None:
    """Time of a compaction, compared with Spark reading and writing the same rows."""
    from tests.bench.compaction import bench_compaction

    show("compaction", bench_compaction(records, keys, print_progress), json, record)


@bench_app.command("start")
def bench_of_start(
    rounds: Annotated[int, typer.Option(help="Starts of each machine.")] = 5,
    json: Json = False,
    record: Record = False,
) -> None:
    """Time of a start until `ready`, compared with Spark's own start."""
    from tests.bench.start import bench_start

    show("start", bench_start(rounds, print_progress), json, record)


@bench_app.command("take-over")
def bench_of_take_over(
    records: Annotated[int, typer.Option(help="Records of the offsets topic.")] = 1_000_000,
    groups: Annotated[int, typer.Option(help="Groups among them.")] = 10_000,
    requests: Annotated[int, typer.Option(help="Answered requests beside them.")] = 0,
    json: Json = False,
    record: Record = False,
) -> None:
    """Time of a start with and without a checkpoint, compared with Spark grouping the same rows."""
    from tests.bench.take_over import bench_take_over

    show("take-over", bench_take_over(records, groups, requests, print_progress), json, record)


@bench_app.command("views")
def bench_of_views(
    records: Annotated[int, typer.Option(help="Records of the offsets topic.")] = 20_000_000,
    json: Json = False,
    record: Record = False,
) -> None:
    """Time of a view of history over a large log, by Spark natively and by DuckDB."""
    from tests.bench.views import bench_views

    show("views", bench_views(records, print_progress), json, record)


@bench_app.command("topic-reads")
def bench_of_topic_reads(
    records: Annotated[int, typer.Option(help="Records of the topic.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="How often the formats take turns.")] = 5,
    json: Json = False,
    record: Record = False,
) -> None:
    """Read rate of a topic in Spark, compared with Delta's source over the same table."""
    from tests.bench.topic_reads import bench_topic_reads

    show("topic-reads", bench_topic_reads(records, rounds, print_progress), json, record)


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
    record: Record = False,
) -> None:
    """CPU per request and response time of several coordinators of one root."""
    from tests.bench.nodes import NODES, bench_nodes

    show(
        "nodes",
        bench_nodes(seconds, print_progress, nodes or NODES, groups, warm_up, rounds),
        json,
        record,
    )


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
    record: Record = False,
) -> None:
    """Effect of a move or restart on other groups, compared with windows without one."""
    from tests.bench.moves import KINDS, bench_moves

    for kind in kinds or ():
        if kind not in KINDS:
            raise typer.BadParameter(f"{kind} is none of {', '.join(KINDS)}")
    asked = kinds or tuple(KINDS)
    report = bench_moves(
        seconds, restart_seconds, windows, print_progress, asked, groups, warm_up, root
    )
    show("moves", report, json, record)


@bench_app.command("verbs")
def bench_of_verbs(
    groups: Annotated[int, typer.Option(help="Groups of the root.")] = 1_000,
    partitions: Annotated[int, typer.Option(help="Partitions that each has committed.")] = 10,
    runs: Annotated[int, typer.Option(help="How often each is run; the fastest counts.")] = 5,
    kafka_libs: KafkaLibs = None,
    json: Json = False,
    record: Record = False,
) -> None:
    """Time of a command's whole process, compared with Kafka's tool."""
    from tests.bench.verbs import bench_verbs

    show("verbs", bench_verbs(groups, partitions, runs, kafka_libs, print_progress), json, record)


@bench_app.command("soak")
def bench_of_soak(
    minutes: Annotated[float, typer.Option(help="How long it runs after the warm-up.")] = 30.0,
    warm_up: WarmUp = 120.0,
    json: Json = False,
    record: Record = False,
) -> None:
    """Stability of response times, memory and files for half an hour."""
    from tests.bench.soak import bench_soak

    show("soak", bench_soak(minutes, print_progress, warm_up), json, record)


@bench_app.command("all")
def bench_of_all(
    quick: Annotated[
        bool, typer.Option("--quick", help="Each as small as it runs, and none recorded.")
    ] = False,
    kafka_libs: KafkaLibs = None,
) -> None:
    """Run every benchmark and record its report: takes an hour and a half."""
    from tests.bench.everything import bench_all

    if failed := bench_all(quick, print_progress, kafka_libs):
        raise Failure(f"{len(failed)} failed: {'; '.join(failed)}")


@bench_app.command("page")
def bench_page() -> None:
    """Render the figures of the pages from the reports that are kept."""
    from tests.bench.page import write_pages

    typer.echo("\n".join(map(str, write_pages())))


if __name__ == "__main__":
    run_command(bench_app, NAME)
