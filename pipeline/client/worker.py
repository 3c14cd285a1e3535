"""The worker of the command: a Delta table's rows, split by partition among a group's workers.

The table is a topic (`pipeline.topics`), which says what partition and offset a row has. The offset
that a group commits for a partition is that of the first row that is not done.

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
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from coordinator.consumer.settings import AutoOffsetReset
from pipeline.client.member import GroupMember
from pipeline.errors import Failure
from pipeline.tables.topics import UnknownTopic
from pipeline.topics import CannotFollow, OffsetOutOfRange, Record, TableTopics

if TYPE_CHECKING:
    from coordinator.consumer.protocol import TopicPartition

log = logging.getLogger(__name__)

DEFAULT_BATCH_ROWS = 1_000
# Rows of one partition that are read at once, bytes of JSON.
_READ_BYTES = 16 << 20
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


class ProcessedRow(Struct, frozen=True):
    """A row as it is put out: its partition, its offset, and its columns as a JSON object."""

    partition: int
    offset: int
    row: msgspec.Raw


class Batch(Struct, frozen=True):
    """The report of a batch: rows per partition, and how many rows the worker has still to do."""

    rows: int
    partitions: dict[int, int]
    lag: int

    def line(self) -> str:
        """The report as a line of text."""
        parts = ", ".join(f"{number}: {count}" for number, count in self.partitions.items())
        return f"{self.rows} rows ({parts}), {self.lag} to do"


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

_encode_row = msgspec.json.Encoder().encode


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

    `once`: stop when every partition of the worker is at the end of the table. Raises UnknownTopic
    for a topic that is no table.
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
        tell: Callable[[Batch | Change], None] = lambda _: None,
    ) -> None:
        self._topic = topic
        self._output, self._batch_rows, self._once, self._tell = output, batch_rows, once, tell
        self._stopping = threading.Event()
        self._topics = TableTopics(root, [topic], whole_rows=True)
        self._topics.poll()
        if topic not in self._topics.topics():
            raise UnknownTopic(
                f"there is no topic {topic!r} under {root} that is a table "
                f"(`group-coordinator topics create {topic} --table URI ...` makes one)"
            )
        self._member_of = partial(
            GroupMember,
            root,
            group,
            [topic],
            on_assigned=lambda partitions: self._changed("assigned", partitions),
            on_revoked=lambda partitions: self._changed("revoked", partitions),
            on_lost=lambda partitions: self._changed("lost", partitions),
            end_offset=lambda one: self._topics.log_end(topic, one.partition),
            settings={**_SETTINGS, **(settings or {})},
        )

    def stop(self) -> None:
        """Stop after the present batch; for signal handlers and other threads."""
        self._stopping.set()

    def run(self) -> None:
        """Work until `stop`, or with `once` to the table's end; then commit and leave the group.

        Raises CannotFollow when the rows up to a change of the table are done, OffsetOutOfRange if
        auto.offset.reset is "none", CommandFailed, and what GroupMember raises.
        """
        with self._member_of() as self._member:
            while not self._stopping.is_set():
                work = self._member.poll(POLL_MS)
                if self._process(work) or self._topics.poll():
                    continue
                if work and len(work) == len(self._member.assignment):
                    problem = self._topics.problems().get(self._topic)
                    if isinstance(problem, CannotFollow):
                        raise CannotFollow(f"topic {self._topic!r}: {problem}") from problem
                    if self._once:
                        return
                if work:
                    # `poll` does not wait while the member has partitions to work on.
                    self._stopping.wait(POLL_MS / 1000)

    def _process(self, work: dict[TopicPartition, int]) -> bool:
        """Put out a batch of the partitions' next rows; False if there is none, and none gone."""
        # A partition that the topic was given just now is in the catalogue as of the next look.
        known = self._topics.topics().get(self._topic, 0)
        done: list[ProcessedRow] = []
        ends: dict[TopicPartition, int] = {}
        moved = False
        for one, offset in work.items():
            if one.partition >= known or len(done) >= self._batch_rows:
                continue
            records = self._read(one, offset, self._batch_rows - len(done))
            moved |= records is None
            for record in records or ():
                row = msgspec.Raw(record.value or b"null")
                done.append(ProcessedRow(one.partition, record.offset, row))
                ends[one] = record.offset + 1
        if not done:
            return moved
        self._output(done)
        for one, end in ends.items():
            self._member.advance(one, end)
        counts = Counter(row.partition for row in done)
        lag = sum(
            self._topics.log_end(self._topic, one.partition) - ends.get(one, offset)
            for one, offset in work.items()
            if one.partition < known
        )
        self._tell(Batch(len(done), dict(sorted(counts.items())), lag))
        return True

    def _read(self, one: TopicPartition, offset: int, most: int) -> list[Record] | None:
        """Read a partition's next rows; None if they are gone, and the worker is past them now."""
        try:
            return self._topics.read(self._topic, one.partition, offset, _READ_BYTES, most)
        except OffsetOutOfRange as error:
            reset = self._member.settings.auto_offset_reset
            if reset is AutoOffsetReset.NONE:
                raise
            place = (
                self._topics.log_start
                if reset is AutoOffsetReset.EARLIEST
                else self._topics.log_end
            )
            target = place(self._topic, one.partition)
            log.warning("%s: going on at offset %d (auto.offset.reset)", error, target)
            self._member.seek(one, target)
            return None

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
