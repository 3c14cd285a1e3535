"""The commits to tables and the responses to clients, checked against each other.

A topic that is deleted and created again is another log with the same name. A log consists of the
records that the commits of its table append, in order. At the end the table itself, read by
delta-rs and Arrow alone, must have the same records.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tests.trials.gateways.acl_times import AclTimes
from tests.trials.gateways.log import Log, take_removal
from tests.trials.gateways.promises import (
    ACKNOWLEDGED,
    DELETED,
    DENIED,
    DENSE,
    ENDS,
    GROWN,
    IDS,
    KEPT,
    ONCE,
    READ_IN_ORDER,
)

if TYPE_CHECKING:
    from tests.trials.simulation.files import Commit
    from tests.trials.simulation.world import World

_OWN = {"key", "value", "offset", "timestampType"}
_DELETED = "topic-deleted"
_CHANGE = ("topic", "partitions", "added", "host", "operation", "resource_name")
# Topics that the intruder tries to create and to delete, without permission.
INTRUDED = "intruded"
SPARED = "orders"
_MILLIS = pa.timestamp("ms", "UTC")


class Sender(Struct):
    """A producer, with the time of each batch's first send (ms of true time) and its producer id.

    A batch with a previous id may wait in a paused gateway, and be written late.
    """

    host: str
    is_idempotent: bool
    sent_at: dict[int, float] = {}
    ids: dict[int, int] = {}


def value_of(sender: str, batch: int, number: int) -> bytes:
    """Return a record's value: its sender, its batch, and its number among the sender's."""
    return f"{sender}/{batch}/{number}".encode()


class Ledger:
    """All logs, and the responses about them."""

    def __init__(self, world: World, root: Path) -> None:
        self.logs: dict[str, list[Log]] = {}
        self.senders: dict[str, Sender] = {}
        self.acls = AclTimes(world)
        # The latest end of each log's partition that was returned or acknowledged.
        self.told_ends: dict[tuple[str, int], int] = {}
        # The number of partitions of each topic in the catalogue, and the files with indexed rows.
        self.counts: dict[str, int] = {}
        self.indexed: set[str] = set()
        self._world = world
        self._root = root
        self._ids: set[int] = set()
        # The folder of each topic that was defined, by its name and the time of its definition.
        self._defined: dict[tuple[str, int], str] = {}

    # --- commits ----------------------------------------------------------------------------------

    def on_commit(self, commit: Commit) -> None:
        """Check a commit as soon as it is visible."""
        if commit.rows is not None and commit.table in ("acls", "topics", "topic_tables"):
            self._take_change(commit.table, commit.rows)
            return
        if commit.rows is not None and commit.table == "topic_index":
            self.indexed |= set(filter(None, commit.rows.column("file").to_pylist()))
            return
        if commit.removes and commit.table.rpartition("-")[0] in self.logs:
            take_removal(self._world, self._root, self.log_of(commit.table), commit.writer)
        if _DELETED in commit.transactions:
            self.log_of(commit.table).is_deleted = True
            self._world.tell(f"{commit.table} is marked as deleted")
        for values, rows in commit.parts:
            if set(rows.column_names) >= _OWN:
                self._take(self.log_of(commit.table), int(values["partition"] or 0), rows)

    def _take_change(self, table: str, rows: pa.Table) -> None:
        changes = rows.to_pylist()
        for row in changes:
            self._world.note(table, *(row.get(name) for name in _CHANGE))
            intruded = INTRUDED in (row.get("topic"), row.get("resource_name"))
            spared = table == "topics" and row["topic"] == SPARED and row["partitions"] is None
            if intruded or spared:
                self._world.violate(DENIED, f"somebody who may do nothing has changed {table}")
        if table == "acls":
            self.acls.take(rows)
        elif table == "topic_tables":
            defined = ((row, row["table"].rpartition("/")[2]) for row in changes if row["config"])
            self._defined |= {(row["topic"], row["at"]): folder for row, folder in defined}
        else:
            self._take_topics(changes)

    def _take_topics(self, changes: list[dict[str, Any]]) -> None:
        """Take in changes of the catalogue: a topic that is made is that of a definition."""
        for change in changes:
            topic = change["topic"]
            before, count = self.counts.get(topic, 0), change["partitions"] or 0
            self._world.check(GROWN)
            if 0 < count < before:
                self._world.violate(GROWN, f"{topic} had {before} partitions, and has {count}")
            self.counts[topic] = count
            folder = self._defined.get((topic, change["at"]))
            if folder is not None and change["partitions"] is not None:
                self.logs.setdefault(topic, []).append(Log(folder, topic, self._world.now))

    def log_of(self, table: str) -> Log:
        """Return the log of a topic's table, by the name of its folder."""
        logs = self.logs[table.rpartition("-")[0]]
        return next(log for log in logs if log.table == table)

    def length(self, topic: str, partition: int) -> int:
        """Return the number of records in a partition of the topic's newest log."""
        logs = self.logs.get(topic)
        return len(logs[-1].partition(partition)) if logs else 0

    def _take(self, log: Log, partition: int, rows: pa.Table) -> None:
        offsets = rows.column("offset").to_pylist()
        values = rows.column("value").to_pylist()
        self._world.check(DELETED)
        if log.is_deleted or log.is_replaced:
            self._world.violate(DELETED, f"{values[0]!r} was appended to {log.table}")
        known = log.partition(partition)
        expected = list(range(len(known), len(known) + len(offsets)))
        self._world.check(DENSE)
        if offsets != expected:
            self._world.violate(
                DENSE,
                f"{log.table}-{partition} was given the offsets {offsets[:3]}.. where "
                f"{len(known)} was to come",
            )
        self._world.count("records", len(values))
        self._world.note("commit", log.topic, partition, offsets[0], len(values))
        for who, records in groupby(values, key=lambda value: value.rpartition(b"/")[0]):
            self._take_batch(log, partition, who.decode(), list(records))
        known.extend(values)
        times = rows.column("timestamp").cast(_MILLIS).cast(pa.int64())
        log.times.setdefault(partition, []).extend(times.to_pylist())

    def _take_batch(self, log: Log, partition: int, who: str, values: list[bytes]) -> None:
        name, _, batch = who.partition("/")
        sender = self.senders[name]
        self._world.check(DENIED)
        first = sender.sent_at[int(batch)]
        if not self.acls.was_allowed(sender.host, "WRITE", log.topic, first, self._world.now):
            self._world.violate(DENIED, f"{values[0]!r} of {sender.host} is in {log.table}")
        if not sender.is_idempotent:
            return
        key = name, sender.ids[int(batch)], partition
        for value in values:
            self._world.check(ONCE)
            number = int(value.rpartition(b"/")[2])
            last = log.last.get(key, -1)
            if number <= last:
                self._world.violate(ONCE, f"{value!r} is in {log.table}-{partition} after {last}")
            log.last[key] = number

    # --- responses to clients --------------------------------------------------------------------

    def on_acknowledged(
        self, topic: str, partition: int, offset: int, values: Sequence[bytes]
    ) -> Log:
        """Check the response to a producer: its records are in a partition from an offset on."""
        self._world.check(ACKNOWLEDGED)
        self._world.count("acknowledged", len(values))
        self._world.note("acknowledged", topic, partition, offset, len(values))
        for log in self.logs.get(topic, ()):
            if log.has(partition, offset, values):
                self._raise_end(log, partition, offset + len(values))
                return log
        self._world.violate(
            ACKNOWLEDGED, f"{values[0]!r} is not at {topic}-{partition}@{offset}, as was answered"
        )
        raise AssertionError

    def on_read(
        self,
        topic: str,
        partition: int,
        offset: int,
        records: Sequence[tuple[int, bytes]],
        high_watermark: int,
    ) -> None:
        """Check the records that a consumer gets from an offset on."""
        self._world.check(READ_IN_ORDER)
        logs = self.logs.get(topic, [])
        values = [value for _, value in records]
        if [at for at, _ in records] != list(range(offset, offset + len(records))):
            self._world.violate(
                READ_IN_ORDER,
                f"{topic}-{partition}@{offset} was answered with {[at for at, _ in records][:5]}",
            )
        if values and not any(log.has(partition, offset, values) for log in logs):
            self._world.violate(
                READ_IN_ORDER, f"{topic}-{partition}@{offset} does not have {values[0]!r}.."
            )
        self._world.count("records read", len(values))
        self._world.note("read", topic, partition, offset, len(values))
        most = max((len(log.partition(partition)) for log in logs), default=0)
        if high_watermark > most:
            self._world.violate(ENDS, f"{topic}-{partition} ends at {most}, not {high_watermark}")

    def on_start(self, topic: str, partition: int, start: int) -> None:
        """Check a log start that was returned, or that made a gateway refuse an earlier offset."""
        self._world.check(KEPT)
        most = max((log.start(partition) for log in self.logs.get(topic, ())), default=0)
        if start > most:
            self._world.violate(
                KEPT, f"{topic}-{partition} is said to begin at {start}, and begins at {most}"
            )

    def on_end(self, topic: str, partition: int, end: int, least: int, begun: float) -> None:
        """Check an end from ListOffsets; at the request, `begun`, the log ended at `least`.

        A topic that was created again since then may start at 0.
        """
        self._world.check(ENDS)
        self._world.note("end", topic, partition, end)
        logs = self.logs.get(topic, [])
        if logs and logs[-1].made_at >= begun:
            least = 0
        most = max((len(log.partition(partition)) for log in logs), default=0)
        if not least <= end <= most:
            self._world.violate(
                ENDS, f"the end of {topic}-{partition} is told as {end}, not {least} to {most}"
            )
        if len(logs) == 1:
            self._raise_end(logs[0], partition, end)

    def least_end(self, topic: str, partition: int) -> int:
        """Return the least end of a partition that any response from now on may have."""
        logs = self.logs.get(topic, [])
        # A gateway may not know yet that a topic was created again.
        return min((self.told_ends.get((log.table, partition), 0) for log in logs), default=0)

    def _raise_end(self, log: Log, partition: int, end: int) -> None:
        key = log.table, partition
        self.told_ends[key] = max(end, self.told_ends.get(key, 0))

    def on_partitions(self, topic: str, count: int, before: int) -> None:
        """Check the partitions in Metadata; `before` is the connection's previous number."""
        self._world.check(GROWN)
        self._world.note("partitions", topic, count)
        # A gateway may not know yet that a topic was deleted or created again.
        is_first = len(self.logs[topic]) == 1 and self.counts[topic]
        if is_first and not before <= count <= self.counts[topic]:
            self._world.violate(
                GROWN,
                f"{topic} has {self.counts[topic]} partitions, and is told to have {count}, after "
                f"{before}",
            )

    def on_producer_id(self, producer_id: int) -> None:
        """Check that a producer id is new."""
        self._world.check(IDS)
        self._world.note("id", producer_id)
        if producer_id in self._ids:
            self._world.violate(IDS, f"producer id {producer_id} was given twice")
        self._ids.add(producer_id)

    # --- in the end -------------------------------------------------------------------------------

    def check_table(self, log: Log, rows: Any) -> None:
        """Check a topic's table, as other libraries read it, against the observed commits."""
        table = rows.sort_by([("partition", "ascending"), ("offset", "ascending")])
        for number in sorted({*table.column("partition").to_pylist(), *log.partitions}):
            part = table.filter(pc.equal(table.column("partition"), number))
            self._world.check(DENSE)
            start, end = log.start(number), len(log.partition(number))
            if part.column("offset").to_pylist() != list(range(start, end)):
                self._world.violate(DENSE, f"{log.table}-{number} has not all offsets once")
            self._world.check(ACKNOWLEDGED)
            if part.column("value").to_pylist() != log.partition(number)[start:]:
                self._world.violate(
                    ACKNOWLEDGED, f"{log.table}-{number} has other records than its commits had"
                )
