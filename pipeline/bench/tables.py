"""What a benchmark found as a table: the same on the screen and on the page of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatch

from msgspec import Struct

from pipeline.bench.answer import AnswerReport
from pipeline.bench.commit import CommitReport
from pipeline.bench.compaction import CompactionFigures
from pipeline.bench.groups import GroupsReport
from pipeline.bench.idle import IdleReport
from pipeline.bench.linger import LingerReport
from pipeline.bench.machine import MachineReport
from pipeline.bench.producer import ProducerFigures
from pipeline.bench.rebalance import RebalanceReport
from pipeline.bench.soak import SoakReport
from pipeline.bench.take_over import TakeOverFigures
from pipeline.bench.throughput import ThroughputReport

_BAR_WIDTH = 20
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Table(Struct):
    """Rows of figures, ready to be read."""

    columns: list[str]
    rows: list[list[object]]
    title: str | None = None


@singledispatch
def table_of(report: Struct) -> Table:
    """The table of a benchmark's report."""
    raise TypeError(f"no table for {type(report).__name__}")


def bar(value: float, largest: float) -> str:
    """A bar as long as the value's share of the largest, to an eighth of a character."""
    eighths = round(8 * _BAR_WIDTH * max(0.0, value) / largest) if largest > 0 else 0
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def bars(values: Sequence[float]) -> Callable[[float], str]:
    """Bars on one scale."""
    largest = max(values, default=0.0)
    return lambda value: bar(value, largest)


@table_of.register
def _answer(report: AnswerReport) -> Table:
    rows: list[list[object]] = [
        [
            f.machine,
            f.answers,
            f.unanswered,
            round(f.p50_ms),
            round(f.p99_ms),
            f"{f.least_p50_ms:.0f}-{f.most_p50_ms:.0f}",
        ]
        for f in (report.floor, report.coordinator)
    ]
    rows.append(["ratio", "", "", f"{report.ratio_p50:.2f}", f"{report.ratio_p99:.2f}", ""])
    columns = ["machine", "answers", "unanswered", "p50 ms", "p99 ms", "p50 ms of the turns"]
    return Table(columns, rows)


@table_of.register
def _linger(report: LingerReport) -> Table:
    draw = bars([each.p50_ms for each in report.lingers])
    rows: list[list[object]] = [
        [f.linger_ms, f.answers, f.unanswered, round(f.p50_ms), round(f.p99_ms), draw(f.p50_ms)]
        for f in report.lingers
    ]
    return Table(["linger.ms", "answers", "unanswered", "p50 ms", "p99 ms", "p50"], rows)


@table_of.register
def _compaction(figures: CompactionFigures) -> Table:
    rows: list[list[object]] = [
        [name, f"{m.seconds:.1f}", m.records_after, f"{m.peak_bytes / 1e6:.0f}"]
        for name, m in (
            ("Spark, read and write", figures.floor),
            ("compaction", figures.compaction),
        )
    ]
    rows.append(["ratio", f"{figures.ratio:.2f}", "", ""])
    return Table(["process", "s", "records after", "peak MB (python)"], rows)


@table_of.register
def _take_over(figures: TakeOverFigures) -> Table:
    rows: list[list[object]] = [
        [
            name,
            f"{start.seconds:.1f}",
            f"{start.empty_seconds:.1f}",
            f"{start.rows_seconds:.1f}",
            *(f"{peak / 1e6:.0f}" for peak in (start.peaks.driver, start.peaks.jvm)),
            f"{start.peaks.worker / 1e6:.0f}",
        ]
        for name, start in (
            ("Spark, read and group", figures.floor),
            ("coordinator", figures.coordinator),
        )
    ]
    of_rows = "" if figures.ratio_rows is None else f"{figures.ratio_rows:.2f}"
    rows.append(["ratio", f"{figures.ratio:.2f}", "", of_rows, "", "", ""])
    columns = ["process", "s", "s, no rows", "s, rows", "peak MB: driver", "JVM", "worker"]
    return Table(columns, rows)


@table_of.register
def _machine(report: MachineReport) -> Table:
    rows: list[list[object]] = [
        [
            load.name,
            f"{load.groups:,} x {load.members}",
            load.requests,
            f"{load.per_second:,.0f}",
            f"{load.floor_per_second:,.0f}",
            f"{load.ratio:.1f}",
            f"{load.state_bytes:,}",
        ]
        for load in report.loads
    ]
    columns = ["load", "groups", "a batch", "requests/s", "floor", "ratio", "state bytes"]
    return Table(columns, rows)


@table_of.register
def _commit(report: CommitReport) -> Table:
    bar_of = bars([1e6 / figures.per_second for figures in report.figures])
    rows: list[list[object]] = [
        [
            f"{figures.held:,}",
            figures.a_batch,
            f"{figures.per_second:,.0f}",
            f"{figures.floor_per_second:,.0f}",
            f"{figures.floor_per_second / figures.per_second:.1f}",
            f"{figures.state_bytes:,}",
            bar_of(1e6 / figures.per_second),
        ]
        for figures in report.figures
    ]
    columns = ["partitions held", "a batch", "commits/s", "floor", "ratio", "state bytes", "cost"]
    return Table(columns, rows)


@table_of.register
def _throughput(report: ThroughputReport) -> Table:
    ours = report.coordinator
    machines = [report.floor, ours] + ([] if report.kafka is None else [report.kafka])
    rows: list[list[object]] = [
        [
            figures.machine,
            f"{figures.groups} x {figures.members}",
            f"{figures.per_second:,.0f}",
            f"{ours.per_second / figures.per_second:.2f}",
        ]
        for figures in machines
    ]
    return Table(["machine", "groups", "heartbeats/s", "coordinator's share"], rows)


@table_of.register
def _rebalance(report: RebalanceReport) -> Table:
    ours, kafka = report.coordinator, report.kafka
    rows: list[list[object]] = [
        [
            figures.machine,
            f"{figures.first_join_s:.3f}",
            _batches(figures.first_join_batches),
            f"{figures.one_more_s:.3f}",
            _batches(figures.one_more_batches),
        ]
        for figures in ([ours] if kafka is None else [ours, kafka])
    ]
    if kafka is not None:
        ratios = (
            ours.first_join_s / kafka.first_join_s,
            ours.one_more_s / kafka.one_more_s,
        )
        rows.append(["ratio", f"{ratios[0]:.1f}", "", f"{ratios[1]:.1f}", ""])
    columns = ["machine", f"{ours.members} from nothing, s", "batches", "one more, s", "batches"]
    return Table(columns, rows)


def _batches(count: float) -> str:
    return f"{count:.0f}" if count else ""


@table_of.register
def _groups(report: GroupsReport) -> Table:
    rows: list[list[object]] = [
        [
            figures.machine,
            figures.batches,
            f"{figures.batch_ms:.0f}",
            f"{figures.add_batch_ms:.0f}",
            f"{figures.ms_a_group:.3f}",
        ]
        for figures in (report.floor, report.storing, report.coordinator)
    ]
    rows.append(["over the floor", "", f"{report.ratio:.2f}", "", ""])
    rows.append(["over the storing floor", "", f"{report.ratio_storing:.2f}", "", ""])
    columns = ["machine", "batches", "batch, ms", "of it run and written, ms", "ms a group"]
    title = f"{report.groups:,} groups, one request of each in a batch"
    return Table(columns, rows, title)


@table_of.register
def _idle(report: IdleReport) -> Table:
    bar_of = bars([figures.adds_ms for figures in report.figures])
    rows: list[list[object]] = [
        [
            figures.machine,
            f"{figures.idle:,}",
            figures.batches,
            f"{figures.batch_ms:.0f}",
            f"{figures.add_batch_ms:.0f}",
            f"{figures.adds_ms:+.0f}" if figures.idle else "",
            bar_of(figures.adds_ms),
        ]
        for figures in report.figures
    ]
    columns = [
        "machine",
        "idle groups",
        "batches",
        "batch, ms",
        "of it run and written, ms",
        "added, ms",
        "",
    ]
    return Table(columns, rows, f"one request a batch, state.store = {report.state_store}")


@table_of.register
def _soak(report: SoakReport) -> Table:
    bar_of = bars([sample.p99_ms for sample in report.samples])
    rows: list[list[object]] = [
        [
            f"{sample.at_s / 60:.1f}",
            sample.answers,
            f"{sample.p50_ms:.0f}",
            f"{sample.p99_ms:.0f}",
            bar_of(sample.p99_ms),
            *(f"{of / 1e6:.0f}" for of in (sample.memory.driver, sample.memory.jvm)),
            f"{sum(sample.files.values()):,}",
            f"{sum(sample.log_files.values()):,}",
        ]
        for sample in report.samples
    ]
    columns = ["minute", "answers", "p50 ms", "p99 ms", "", "Python MB", "JVM MB", "files", "logs"]
    title = f"{report.answers:,} answers, {report.unanswered} requests without one"
    return Table(columns, rows, title)


@table_of.register
def _producer(figures: ProducerFigures) -> Table:
    rows: list[list[object]] = [
        [
            each.linger_ms,
            f"{each.commits_per_second:.1f}",
            f"{each.requests_per_commit:.1f}",
            f"{each.ack_p50_ms:.1f}",
            f"{each.ack_p99_ms:.1f}",
            f"{each.commit_p50_ms:.1f}",
            f"{each.commit_p99_ms:.1f}",
            f"{each.flat_out_per_second:,.0f}",
            f"{each.flat_out_per_commit:,.0f}",
            f"{each.floor_per_second:,.0f}",
            f"{each.ratio:.2f}",
        ]
        for each in figures.lingers
    ]
    columns = [
        "linger.ms",
        "commits/s",
        "a commit",
        "ack p50 ms",
        "p99",
        "floor p50",
        "p99",
        "flat out/s",
        "a commit",
        "floor/s",
        "ratio",
    ]
    title = f"{figures.paced_per_second} requests/s of {figures.members} members, and flat out"
    return Table(columns, rows, title)
