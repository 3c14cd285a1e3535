"""The worker of the command: a Delta table's rows, split by partition among a group's workers.

Rows are numbered in the order of their commits (`pipeline.tables.table_rows`), across partitions.
The offset that a group commits for a partition is the number of the first row that was not yet
examined for it: all rows of the partition below it are done. At the end of the table all partitions
have the same offset, the number of rows.

At least once: an offset is committed after its rows were put out. Rows that a worker put out before
it was killed are put out again by another one, at most those of `auto.commit.interval.ms`.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct

from coordinator.consumer.protocol import TopicPartition
from pipeline.client.member import GroupMember
from pipeline.errors import Failure
from pipeline.tables.partitioner import Partitioner
from pipeline.tables.table_rows import TableRows

DEFAULT_BATCH_ROWS = 1_000
# How long a worker without work waits before it looks for new rows, ms.
POLL_MS = 500
_SETTINGS = {
    # A worker continues on the partitions that it keeps while the others move.
    "partition.assignment.strategy": "cooperative-sticky",
    "auto.commit.interval.ms": 1_000,
    "auto.offset.reset": "earliest",
}


class CommandFailed(Failure):
    """The command that was given rows ended with an error."""


class UnknownColumn(Failure):
    """The table has no such column to partition by."""


class ProcessedRow(Struct, frozen=True):
    """A row as it is put out: its partition, its offset, and its columns."""

    partition: int
    offset: int
    row: dict[str, Any]


class Batch(Struct, frozen=True):
    """The report of a batch: rows per partition, and how far the table is done."""

    rows: int
    partitions: dict[int, int]
    offset: int
    end: int

    def line(self) -> str:
        """The report as a line of text."""
        parts = ", ".join(f"{number}: {count}" for number, count in self.partitions.items())
        return f"{self.rows} rows ({parts or 'none of mine'}), at {self.offset} of {self.end}"


class Change(Struct, frozen=True):
    """The report of partitions that were assigned, revoked or lost."""

    event: str
    partitions: list[int]
    generation: int

    def line(self) -> str:
        """The report as a line of text."""
        numbers = ", ".join(map(str, self.partitions)) or "none"
        return f"{self.event}: {numbers} (generation {self.generation})"


# Takes rows, and returns when they are safe.
Output = Callable[[list[ProcessedRow]], None]

_encode_row = msgspec.json.Encoder(enc_hook=str).encode


def to_stdout(rows: list[ProcessedRow]) -> None:
    """Write rows to stdout as JSON Lines."""
    out = sys.stdout.buffer
    out.writelines(_encode_row(row) + b"\n" for row in rows)
    out.flush()


def to_command(command: str) -> Output:
    """Hand each batch to a shell command as JSON Lines on its stdin; raises CommandFailed."""

    def run(rows: list[ProcessedRow]) -> None:
        lines = b"".join(_encode_row(row) + b"\n" for row in rows)
        status = subprocess.run(command, shell=True, input=lines, check=False).returncode
        if status:
            raise CommandFailed(
                f"{command!r} ended with status {status}: {len(rows)} rows are not committed"
            )

    return run


class Worker:
    """One worker; `tell` is called with each of its reports.

    `once`: stop when every partition of the worker is at the end of the table. Raises NotALog and
    UnknownColumn.
    """

    def __init__(
        self,
        root: str,
        group: str,
        topic: str,
        table: str,
        partition_by: str,
        *,
        output: Output = to_stdout,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        once: bool = False,
        settings: Mapping[str, Any] | None = None,
        tell: Callable[[Batch | Change], None] = lambda _: None,
    ) -> None:
        self._root, self._topic, self._column = root, topic, partition_by
        self._output, self._batch_rows, self._once, self._tell = output, batch_rows, once, tell
        self._stopping = threading.Event()
        self._rows = TableRows(table)
        if partition_by not in self._rows.columns:
            raise UnknownColumn(
                f"--partition-by: {table} has no column {partition_by!r}, "
                f"only {', '.join(self._rows.columns)}"
            )
        self._member_of = partial(
            GroupMember,
            root,
            group,
            [topic],
            on_assigned=lambda partitions: self._changed("assigned", partitions),
            on_revoked=lambda partitions: self._changed("revoked", partitions),
            on_lost=lambda partitions: self._changed("lost", partitions),
            end_offset=lambda _: self._rows.end,
            settings={**_SETTINGS, **(settings or {})},
        )

    def stop(self) -> None:
        """Stop after the present batch; for signal handlers and other threads."""
        self._stopping.set()

    def run(self) -> None:
        """Work until `stop`, or with `once` to the table's end; then commit and leave the group.

        Raises NotALog, CommandFailed, and what GroupMember raises.
        """
        with self._member_of() as self._member:
            self._partitioner = Partitioner(self._root, self._topic, self._rows)
            self._partitioner.look()
            while not self._stopping.is_set():
                work = self._member.poll(POLL_MS)
                if work and min(work.values()) < self._rows.end:
                    self._process(work)
                elif not self._partitioner.look():
                    if self._once and work and len(work) == len(self._member.assignment):
                        return
                    if work:
                        # `poll` does not wait while the member has partitions to work on.
                        self._stopping.wait(POLL_MS / 1000)

    def _process(self, work: dict[TopicPartition, int]) -> None:
        batch = self._rows.read(min(work.values()), self._batch_rows)
        keys = batch.rows.column(self._column)
        numbers = self._partitioner.partitions(keys, batch.first)
        mine = {one.partition: offset for one, offset in work.items()}
        chosen = [
            i
            for i, number in enumerate(numbers)
            if number in mine and batch.first + i >= mine[number]
        ]
        columns = batch.rows.take(pa.array(chosen, pa.int64())).to_pylist()
        done = [
            ProcessedRow(numbers[i], batch.first + i, row)
            for i, row in zip(chosen, columns, strict=True)
        ]
        if done:
            self._output(done)
        for one, offset in work.items():
            if offset < batch.end:
                self._member.advance(one, batch.end)
        counts = Counter(row.partition for row in done)
        self._tell(Batch(len(done), dict(sorted(counts.items())), batch.end, self._rows.end))

    def _changed(self, event: str, partitions: tuple[TopicPartition, ...]) -> None:
        numbers = [one.partition for one in partitions]
        self._tell(Change(event, numbers, self._member.generation))


def run_worker(*where: str, **how: Any) -> None:
    """Run a worker, made with these arguments, until it is done or a signal stops it."""
    logging.basicConfig(format="%(levelname)s %(message)s")
    worker = Worker(*where, **how)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: worker.stop())
    worker.run()
