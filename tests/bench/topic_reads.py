"""Read rate of a topic in Spark, by the data source `group_coordinator` and by the Delta table.

Both read all columns of all records in the same session, in turn. The first round, in which the
JVM compiles, does not count. CPU is that of the JVM and of the Python workers, without the JVM's
compilers. The topic's table is as producers append to it, before upkeep joins files.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
from msgspec import Struct

from group_coordinator.pipeline.client import Producer
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.session.start import SessionStart
from group_coordinator.pipeline.settings import load_settings
from group_coordinator.pipeline.spark import register_data_source
from group_coordinator.pipeline.tables.store import ensure_tables
from group_coordinator.pipeline.topics import create_log_topic
from tests.bench.cpu import CpuCounter
from tests.bench.report import Column, Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

RECORDS = 1_000_000
PARTITIONS = 6
ROUNDS = 5
_TOPIC = "clicks"
_VALUE_BYTES = 100
_KEYS = 10_000
# Records of one commit.
_COMMIT_RECORDS = 50_000


class ReadRate(Struct, frozen=True):
    """The least time and CPU of a format's rounds: s, and us a record."""

    format: Annotated[str, Column("format")]
    seconds: Annotated[float, Column("s", ".2f")]
    rate: Annotated[float, Column("records/s", ",.0f")]
    cpu_us: Annotated[float, Column("CPU us a record", ".2f")]


class TopicReadsReport(Report):
    """Both formats over one topic."""

    records: int
    partitions: int
    formats: list[ReadRate]

    def title(self) -> str:
        """Return the description of the data."""
        return (
            f"{self.records:,} records of {_VALUE_BYTES} bytes in {self.partitions} partitions: "
            "the least time of the rounds"
        )

    def rows(self) -> list[ReadRate]:
        """Return the Delta table first."""
        return self.formats

    def ratios(self) -> dict[str, dict[str, float]]:
        """Return the figures of the data source divided by those of the table."""
        table, source = self.formats
        ratios = {
            "records/s": source.rate / table.rate,
            "CPU us a record": source.cpu_us / table.cpu_us,
        }
        return {f"{source.format} / {table.format}": ratios}


def bench_topic_reads(
    records: int = RECORDS, rounds: int = ROUNDS, say: Callable[[str], None] = print
) -> TopicReadsReport:
    """Make a topic, and read it by both formats in turn. Raises Failure if one lacks records."""
    with tempfile.TemporaryDirectory(prefix="bench-topic-") as root:
        say(f"making a topic of {records:,} records")
        table = make_topic(root, records)
        spark = SessionStart(load_settings(), root, delta=True).finish()
        try:
            register_data_source(spark)

            def source() -> DataFrame:
                reader = spark.read.format("group_coordinator")
                return reader.option("root", root).option("topic", _TOPIC).load()

            reads = {
                "delta": lambda: spark.read.format("delta").load(table),
                "group_coordinator": source,
            }
            for name, read in reads.items():
                if (found := read().count()) != records:
                    raise Failure(f"{name} reads {found:,} of {records:,} records")
            costs: dict[str, list[tuple[float, float]]] = {name: [] for name in reads}
            for number in range(rounds + 1):
                for name, read in reads.items():
                    seconds, cpu_s = _cost(read())
                    say(f"round {number}: {name} {seconds:.2f} s, {cpu_s:.2f} s of CPU")
                    if number:
                        costs[name].append((seconds, cpu_s))
        finally:
            spark.stop()
    figures = []
    for name, rounds_of in costs.items():
        seconds, cpu_s = map(min, zip(*rounds_of, strict=True))
        figures.append(ReadRate(name, seconds, records / seconds, cpu_s / records * 1e6))
    return TopicReadsReport(records, PARTITIONS, figures)


def make_topic(root: str, records: int) -> str:
    """Create the topic with its records; return the path of its table."""
    ensure_tables(root)
    definition = create_log_topic(root, _TOPIC, PARTITIONS)
    with Producer(root) as producer:
        for first in range(0, records, _COMMIT_RECORDS):
            numbers = range(first, min(first + _COMMIT_RECORDS, records))
            keys = [b"c%d" % (number % _KEYS) for number in numbers]
            values = [b"%0*d" % (_VALUE_BYTES, number) for number in numbers]
            rows = pa.table({"key": keys, "value": values})
            producer.send_table(_TOPIC, rows).result()
    return f"{root}/{definition.table}"


def _cost(rows: DataFrame) -> tuple[float, float]:
    """Read all rows; return the time and the CPU, s."""
    counter = CpuCounter([os.getpid()])
    began = time.monotonic()
    rows.write.format("noop").mode("overwrite").save()
    seconds = time.monotonic() - began
    cpu = counter.used()
    return seconds, cpu.total_s - cpu.compiling_s
