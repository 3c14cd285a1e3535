"""Benchmark results on the screen."""

from __future__ import annotations

import sys

import msgspec
from rich.console import Console

from pipeline.bench.answer import Report
from pipeline.bench.commit import CommitReport
from pipeline.bench.compaction import CompactionFigures
from pipeline.bench.machine import MachineReport
from pipeline.bench.rebalance import RebalanceReport
from pipeline.bench.take_over import TakeOverFigures
from pipeline.bench.throughput import ThroughputReport
from pipeline.show import PLAIN_WIDTH, grid


def _print(columns: list[str], rows: list[list[object]]) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    console.print(grid(columns, rows))


def show_answer(report: Report, json: bool) -> None:
    """Print the answer times as a table, or as one JSON object."""
    if json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        return
    rows = [
        [f.machine, f.answers, f.unanswered, round(f.p50_ms), round(f.p99_ms)]
        for f in (report.floor, report.coordinator)
    ]
    rows.append(["ratio", "", "", f"{report.ratio_p50:.2f}", f"{report.ratio_p99:.2f}"])
    columns = ["machine", "answers", "unanswered", "p50 ms", "p99 ms"]
    _print(columns, rows)


def show_compaction(figures: CompactionFigures, json: bool) -> None:
    """Print the figures of compaction as a table, or as one JSON object."""
    if json:
        sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")
        return
    rows = [
        [name, f"{m.seconds:.1f}", m.records_after, f"{m.peak_bytes / 1e6:.0f}"]
        for name, m in (
            ("Spark, read and write", figures.floor),
            ("compaction", figures.compaction),
        )
    ]
    rows.append(["ratio", f"{figures.ratio:.2f}", "", ""])
    Console().print(grid(["process", "s", "records after", "peak MB (python)"], rows))


def show_take_over(figures: TakeOverFigures, json: bool) -> None:
    """Print the figures of a take-over as a table, or as one JSON object."""
    if json:
        sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")
        return
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
    ratios = [f"{figures.ratio:.2f}", "", of_rows]
    rows.append(["ratio", *ratios, "", "", ""])
    columns = ["process", "s", "s, no rows", "s, rows", "peak MB: driver", "JVM", "worker"]
    _print(columns, rows)


def show_machine(report: MachineReport, json: bool) -> None:
    """Print what the pure machine decides as a table, or as one JSON object."""
    if json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        return
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
    _print(columns, rows)


def show_commit(report: CommitReport, json: bool) -> None:
    """Print what commits cost as a table, or as one JSON object."""
    if json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        return
    rows: list[list[object]] = [
        [
            f"{figures.held:,}",
            figures.a_batch,
            f"{figures.per_second:,.0f}",
            f"{figures.floor_per_second:,.0f}",
            f"{figures.floor_per_second / figures.per_second:.1f}",
            f"{figures.state_bytes:,}",
        ]
        for figures in report.figures
    ]
    columns = ["partitions held", "a batch", "commits/s", "floor", "ratio", "state bytes"]
    _print(columns, rows)


def show_throughput(report: ThroughputReport, json: bool) -> None:
    """Print heartbeats a second as a table, or as one JSON object."""
    if json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        return
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
    columns = ["machine", "groups", "heartbeats/s", "coordinator's share"]
    _print(columns, rows)


def show_rebalance(report: RebalanceReport, json: bool) -> None:
    """Print how long rebalances take as a table, or as one JSON object."""
    if json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        return
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
    _print(columns, rows)


def _batches(count: float) -> str:
    return f"{count:.0f}" if count else ""
