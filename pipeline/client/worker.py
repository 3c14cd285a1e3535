"""Worker of the command line: it processes a topic's rows, shared by partition among a group.

The topic (`pipeline.topics`) defines the partition and offset of each row. Delivery is at least
once: a worker commits the offset of the first unprocessed row, after it has output the rows before
it. If a worker is killed, another one outputs again the rows since the last commit, which is at
most `auto.commit.interval.ms` ago.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.client.member import GroupMember
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.interrupt import SignalEvent
from group_coordinator.pipeline.tables import UnknownTopic
from group_coordinator.pipeline.topics import TableTopics

if TYPE_CHECKING:
    from group_coordinator.coordinator.consumer.protocol import TopicPartition
    from group_coordinator.pipeline.client.consumer_record import ConsumerRecord

DEFAULT_BATCH_ROWS = 1_000
# The poll timeout, ms: how soon an idle worker notices that it was stopped. With `once` it is
# shorter, because an idle worker then checks whether it is at the end.
POLL_MS = 500
_POLL_ONCE_MS = 50
_SETTINGS = {
    # During a rebalance a worker continues with the partitions that it keeps.
    "partition.assignment.strategy": "cooperative-sticky",
    "auto.commit.interval.ms": 1_000,
    "auto.offset.reset": "earliest",
}


class CommandFailed(Failure):
    """Error of a command that processed rows and ended with a nonzero status."""


class ProcessedRow(Struct, frozen=True):
    """An output row: its partition, its offset, and its columns as a JSON object."""

    partition: int
    offset: int
    row: msgspec.Raw


class BatchReport(Struct, frozen=True):
    """The report of a batch: its rows, its rows per partition, and the worker's remaining lag."""

    rows: int
    partitions: dict[int, int]
    lag: int

    def line(self) -> str:
        """Return the report as a line of text."""
        parts = ", ".join(f"{number}: {count}" for number, count in self.partitions.items())
        return f"{self.rows} rows ({parts}), {self.lag} to do"


class AssignmentReport(Struct, frozen=True):
    """The report of partitions that were assigned, revoked or lost."""

    event: str
    partitions: list[int]
    generation: int

    def line(self) -> str:
        """Return the report as a line of text."""
        numbers = ", ".join(map(str, self.partitions)) or "none"
        return f"{self.event}: {numbers} (generation {self.generation})"


# A function that outputs rows, and returns when they are safe.
Output = Callable[[list[ProcessedRow]], None]

_encode_row = msgspec.json.Encoder().encode


def to_stdout(rows: list[ProcessedRow]) -> None:
    """Write rows to stdout as JSON Lines."""
    out = sys.stdout.buffer
    out.writelines(_encode_row(row) + b"\n" for row in rows)
    out.flush()


def to_command(command: str) -> Output:
    """Return an output that pipes each batch to a shell command as JSON Lines.

    The output raises CommandFailed.
    """

    def run(rows: list[ProcessedRow]) -> None:
        lines = b"".join(_encode_row(row) + b"\n" for row in rows)
        status = subprocess.run(command, shell=True, input=lines, check=False).returncode
        if status:
            raise CommandFailed(
                f"{command!r} ended with status {status}: {len(rows)} rows are not committed"
            )

    return run


class Worker:
    """A worker, which calls `on_report` with each of its reports.

    With `once`, it stops when all its partitions are at the end of the table. Raises UnknownTopic
    if the topic is not a table.
    """

    def __init__(
        self,
        root: str,
        group: str,
        topic: str,
        *,
        output: Output = to_stdout,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        once: bool = False,
        settings: Mapping[str, Any] | None = None,
        on_report: Callable[[BatchReport | AssignmentReport], None] = lambda _: None,
    ) -> None:
        self._output, self._once, self._on_report = output, once, on_report
        self._stopping = SignalEvent()
        topics = TableTopics(root, [topic])
        topics.poll()
        if topic not in topics.topics():
            raise UnknownTopic(
                f"there is no topic {topic!r} with a table under {root}: create it with "
                f"`group-coordinator topics create {topic} --table URI`"
            )
        self._member_of = partial(
            GroupMember,
            root,
            group,
            [topic],
            on_assigned=lambda partitions: self._changed("assigned", partitions),
            on_revoked=lambda partitions: self._changed("revoked", partitions),
            on_lost=lambda partitions: self._changed("lost", partitions),
            whole_rows=True,
            settings={**_SETTINGS, "max.poll.records": batch_rows, **(settings or {})},
        )

    def stop(self) -> None:
        """Stop after the current batch. Signal handlers and other threads may call it."""
        self._stopping.set()

    def run(self) -> None:
        """Process rows until `stop`, or with `once` to the table's end; then commit and leave.

        Raises CommandFailed and the errors of `GroupMember.poll`, such as CannotFollow after all
        rows before a change of the table were processed.
        """
        timeout_ms = _POLL_ONCE_MS if self._once else POLL_MS
        with self._member_of() as self._member:
            while not self._stopping.is_set():
                records_by_partition = self._member.poll(timeout_ms)
                if records_by_partition:
                    self._process(records_by_partition)
                elif self._once and self._is_at_end():
                    return

    def _process(self, records_by_partition: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        """Output a batch and report it. If this raises, the batch is not committed."""
        rows = [
            ProcessedRow(partition.partition, record.offset, msgspec.Raw(record.value or b"null"))
            for partition, records in records_by_partition.items()
            for record in records
        ]
        self._output(rows)
        counts = {
            partition.partition: len(records)
            for partition, records in sorted(records_by_partition.items())
        }
        lags = (self._member.current_lag(partition) for partition in self._member.assignment)
        self._on_report(BatchReport(len(rows), counts, sum(lag for lag in lags if lag is not None)))

    def _is_at_end(self) -> bool:
        """Return whether the worker has partitions, and all of them are processed to their ends."""
        assigned = self._member.assignment
        if not assigned:
            return False
        ends = self._member.end_offsets(assigned)
        return all(self._member.position(partition) == ends[partition] for partition in assigned)

    def _changed(self, event: str, partitions: tuple[TopicPartition, ...]) -> None:
        numbers = [partition.partition for partition in partitions]
        self._on_report(AssignmentReport(event, numbers, self._member.generation))


def run_worker(*where: str, **how: Any) -> None:
    """Create a worker with these arguments; run it until it is done or a signal stops it."""
    logging.basicConfig(format="%(levelname)s %(message)s")
    worker = Worker(*where, **how)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: worker.stop())
    worker.run()
