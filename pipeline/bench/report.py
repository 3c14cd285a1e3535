"""Benchmark results on the screen."""

from __future__ import annotations

import sys

import msgspec
from rich.console import Console

from pipeline.bench.answer import Report
from pipeline.bench.compaction import CompactionFigures
from pipeline.bench.take_over import TakeOverFigures
from pipeline.show import grid


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
    Console().print(grid(columns, rows))


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
    Console().print(grid(columns, rows))
