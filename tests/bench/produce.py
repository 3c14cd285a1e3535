"""Records per second written to a topic's table: by `Producer`, by a C client, and by delta-rs.

Each way writes the same records to a separate topic, from the same number of processes. The time
runs from the start signal until all is written, without the start of the processes. `send` takes
single records, `send_table` Arrow tables. delta-rs gets the same tables with the columns of a
topic's rows, with as many rows per commit as `send_table`, and writes them to a table with the same
partitions. It assigns no exclusive offsets, and checks nothing. `gateway` is confluent-kafka,
acks=all and idempotent, with one gateway process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from msgspec import Struct

from group_coordinator.coordinator.producer.record_accumulator import record_size
from group_coordinator.pipeline.client import Producer
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import ensure_tables
from group_coordinator.pipeline.topics import create_log_topic, log_topics, positive_hashes
from group_coordinator.schemas.tables import TOPIC_RECORDS
from tests.bench.report import Aim, Column, Report
from tests.bench.running import serving
from tests.support.broker import HOST

SEND, TABLE, DELTA, GATEWAY = "send", "send_table", "delta-rs", "gateway"
WAYS = (SEND, TABLE, DELTA, GATEWAY)
SIZES, PARTITIONS, PROCESSES = (100, 1_000), (1, 6, 50), (1, 8)
RECORDS = 1_000_000
_KEYS = 1_000
# The size of a table that is sent at once, bytes as a producer counts them: that of a commit.
_TABLE_BYTES = 24 << 20
_TOPIC = "records"
_LIMIT_S = 600.0


class Load(Struct):
    """The size of a load: sizes of values in bytes, numbers of partitions and of processes.

    `records` have 100 bytes; there are proportionally fewer of larger values.
    """

    records: int = RECORDS
    sizes: Sequence[int] = SIZES
    partitions: Sequence[int] = PARTITIONS
    processes: Sequence[int] = PROCESSES
    ways: Sequence[str] = WAYS


class ProduceFigures(Struct):
    """The figures of one way, by the size of records, partitions and processes."""

    way: Annotated[str, Column("written by")]
    value_bytes: Annotated[int, Column("bytes")]
    partitions: Annotated[int, Column("partitions")]
    processes: Annotated[int, Column("processes")]
    per_s: Annotated[float, Column("records/s", ",.0f")]
    mb_per_s: Annotated[float, Column("MB/s", ".1f")]
    commits: Annotated[int, Column("commits")]
    files: Annotated[int, Column("files")]


class ProduceReport(Report):
    """The figures of all ways and loads."""

    found: list[ProduceFigures]

    def rows(self) -> list[ProduceFigures]:
        """Return one row for each way and load."""
        return self.found

    def aims(self) -> list[Aim]:
        """Return the aims: tables nearly as fast as by delta-rs, records as by a C client."""
        by_load: dict[tuple[int, int, int], dict[str, float]] = {}
        for each in self.found:
            load = (each.value_bytes, each.partitions, each.processes)
            by_load.setdefault(load, {})[each.way] = each.per_s
        aims = []
        for (size, partitions, processes), per_s in by_load.items():
            what = f"{size} B, {partitions} partitions, {processes} processes"
            if TABLE in per_s and DELTA in per_s:
                share = per_s[TABLE] / per_s[DELTA]
                aims.append(Aim(f"send_table over delta-rs, {what}", "", 0.8, share, most=False))
            if SEND in per_s and GATEWAY in per_s and size == min(SIZES):
                share = per_s[SEND] / per_s[GATEWAY]
                aims.append(Aim(f"send over the gateway, {what}", "", 1, share, most=False))
        return aims


class Task(Struct):
    """The work of one process: `at` is a root, a table or the gateway's address."""

    way: str
    at: str
    records: int
    value_bytes: int
    partitions: int


def bench_produce(load: Load, say: Callable[[str], None]) -> ProduceReport:
    """Measure each way with each load; `say` hears of progress. Raises Failure."""
    found = []
    for size in load.sizes:
        records = load.records * min(SIZES) // size
        for partitions in load.partitions:
            for processes in load.processes:
                for way in load.ways:
                    say(f"{way}: {size} B, {partitions} partitions, {processes} processes")
                    found.append(_measure(way, records, size, partitions, processes))
    return ProduceReport(found)


def _measure(way: str, records: int, size: int, partitions: int, processes: int) -> ProduceFigures:
    with tempfile.TemporaryDirectory(prefix="group-coordinator-bench-") as folder:
        root = str(Path(folder) / "root")
        ensure_tables(root)
        create_log_topic(root, _TOPIC, partitions)
        ((topic, *_), _) = log_topics(root)
        each = Task(way, root, records // processes, size, partitions)
        if way == DELTA:
            each.at = topic.table
            seconds = _run(each, processes)
        elif way == GATEWAY:
            with serving(root) as (port, _):
                each.at = f"{HOST}:{port}"
                seconds = _run(each, processes)
        else:
            seconds = _run(each, processes)
        table = DeltaTable(topic.table)
        written = table.to_pyarrow_dataset().count_rows()
        total = each.records * processes
        if written != total:
            raise Failure(f"{way}: {written} of {total} records are in the table")
        return ProduceFigures(
            way,
            size,
            partitions,
            processes,
            total / seconds,
            total * size / seconds / 1e6,
            table.version(),
            len(table.file_uris()),
        )


def _run(task: Task, processes: int) -> float:
    """Run `processes` writers; return the time until the last one ended, s."""
    command = [sys.executable, "-c", f"from {__name__} import write; write()"]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(processes)
    ]
    try:
        for each in started:
            _tell(each, msgspec.json.encode(task))
        for each in started:
            _await_line(each)
        began = time.perf_counter()
        for each in started:
            _tell(each, b"begin")
        for each in started:
            _await_line(each)
        return time.perf_counter() - began
    finally:
        for each in started:
            each.kill()
            each.communicate()


def _tell(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()


def _await_line(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    if not process.stdout.readline():
        raise Failure("a process that writes records ended too early")


# --- in a process ---------------------------------------------------------------------------------


def write() -> None:
    """Write the task in the first line of standard input, after the second line arrives."""
    task = msgspec.json.decode(sys.stdin.readline(), type=Task)
    with _writer(task) as work:
        print("ready", flush=True)
        sys.stdin.readline()
        work()
    print("done", flush=True)


@contextmanager
def _writer(task: Task) -> Iterator[Callable[[], None]]:
    """Prepare records and a producer, before the time runs."""
    if task.way == GATEWAY:
        yield _through_gateway(task, *_records(task))
    elif task.way == DELTA:
        tables = [_rows_of(each, task.partitions) for each in _tables(task)]
        yield lambda: _by_delta(task.at, tables)
    else:
        with Producer(task.at) as producer:
            producer.partitions_for(_TOPIC)
            if task.way == SEND:
                keys, values = _records(task)
                yield lambda: _by_records(producer, keys, values)
            else:
                tables = list(_tables(task))
                yield lambda: _by_tables(producer, tables)


def _by_records(producer: Producer, keys: list[bytes], values: list[bytes]) -> None:
    for key, value in zip(keys, values, strict=True):
        producer.send(_TOPIC, value, key)
    producer.flush(_LIMIT_S)


def _by_tables(producer: Producer, tables: list[pa.Table]) -> None:
    sent = [producer.send_table(_TOPIC, each) for each in tables]
    for each in sent:
        each.result(_LIMIT_S)


def _by_delta(table: str, tables: list[pa.Table]) -> None:
    for each in tables:
        write_deltalake(table, each, mode="append", partition_by=["partition"])


def _through_gateway(task: Task, keys: list[bytes], values: list[bytes]) -> Callable[[], None]:
    kafka = import_module("confluent_kafka")
    producer = kafka.Producer(
        {
            "bootstrap.servers": task.at,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 2_000_000,
            "partitioner": "murmur2_random",
        }
    )
    producer.list_topics(_TOPIC, 60)

    def work() -> None:
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    producer.produce(_TOPIC, value, key)
                except BufferError:
                    producer.poll(0.05)
                else:
                    break
            producer.poll(0)
        if producer.flush(_LIMIT_S):
            raise Failure("not all records were acknowledged")

    return work


def _records(task: Task) -> tuple[list[bytes], list[bytes]]:
    """Return a thousand repeated keys, and different values."""
    keys = [b"k%d" % number for number in range(_KEYS)]
    size, content = task.value_bytes, os.urandom(task.records * task.value_bytes)
    values = [content[at : at + size] for at in range(0, len(content), size)]
    return [keys[number % _KEYS] for number in range(task.records)], values


def _tables(task: Task) -> Iterator[pa.Table]:
    """Yield the records as tables of `_TABLE_BYTES`."""
    step = _TABLE_BYTES // (record_size(b"k999", b"") + task.value_bytes)
    keys, values = _records(task)
    for first in range(0, task.records, step):
        part = slice(first, first + step)
        yield pa.table({"key": pa.array(keys[part]), "value": pa.array(values[part])})


def _rows_of(table: pa.Table, partitions: int) -> pa.Table:
    """Return the same records as rows of a topic's table."""
    count = table.num_rows
    keys = table.column("key").combine_chunks().cast(pa.large_binary())
    columns: dict[str, Any] = {
        "key": table.column("key"),
        "value": table.column("value"),
        "topic": pa.repeat(_TOPIC, count),
        "partition": pa.array(positive_hashes(keys) % partitions, pa.int32()),
        "offset": pa.array(np.arange(count)),
        "timestamp": pa.repeat(pa.scalar(time.time_ns() // 1_000, pa.int64()), count),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
        "headers": pa.nulls(count),
    }
    return pa.table(columns).cast(TOPIC_RECORDS.schema)
