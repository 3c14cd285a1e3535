"""Which partition a row belongs to: Kafka's default partitioner over the text of one column.

A row's partition never changes, or an offset that a group has committed for one partition would
pass over rows that came to it from another. So for each table the number of partitions is settled
once for all rows from some row on, in the order of the rows, and no clock takes part: the
catalogue's times are those of the machine that changes a topic, the commits' those of the machines
that write rows.

The order is this. A worker places rows only up to an end of the table that it read before it found
no new change in the catalogue. A worker that finds one reads the end of the table again, and
settles that the change holds from there on. So every row that anybody placed without knowing of the
change lies before that end. The settled numbers are the rows of a table of the root; who settles
first decides, by Delta's transaction identifiers.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from kafka.partitioner.default import murmur2
from msgspec import Struct

from pipeline.delta.open import open_appender
from pipeline.tables.store import ensure_table, open_table, table_uri
from pipeline.tables.topic_watcher import TopicWatcher
from pipeline.tables.topics import UnknownTopic
from schemas.messages import Int32, Int64, Timestamp
from schemas.tables import Table, arrow_schema, from_arrow, to_arrow

if TYPE_CHECKING:
    from pipeline.tables.table_rows import TableRows
    from schemas.tables import TopicChange

_POSITIVE = 0x7FFFFFFF


class SettledCount(Struct, frozen=True):
    """How many partitions a topic has for the rows of a table from `first_row` on.

    `table_id` is the id in the table's metadata; `changed_at` tells the change of the catalogue.
    """

    topic: str
    table_id: str
    first_row: Int64
    partitions: Int32
    changed_at: Timestamp


SETTLED_COUNTS = Table("settled_counts", arrow_schema(SettledCount))


@lru_cache(maxsize=1 << 16)
def key_hash(text: str) -> int:
    """Return the number that decides a key's partition. Source: Kafka's BuiltInPartitioner."""
    return int(murmur2(text.encode())) & _POSITIVE


class Partitioner:
    """The partitions of a table's rows for one topic; for one thread.

    The first worker of a topic and a table settles the topic's present number for all rows.
    """

    def __init__(self, root: str, topic: str, rows: TableRows) -> None:
        self._root = root
        self._topic = topic
        self._rows = rows
        self._watcher = TopicWatcher(root)
        ensure_table(root, SETTLED_COUNTS)
        self._appender = open_appender(table_uri(root, SETTLED_COUNTS))
        self._app_id = f"{topic}/{rows.table_id}"
        self._settled = self._read()

    def look(self) -> bool:
        """Take in new rows, and settle their partitions; return whether there are new rows.

        Raises UnknownTopic if the topic never was, and what `TableRows.look` raises.
        """
        before = self._rows.end
        while True:
            # The rows before the catalogue: a change that is not found then holds for none of them.
            self._rows.look()
            change = self._unsettled_change()
            if change is None:
                return self._rows.end > before
            self._settle(change)

    def partitions(self, keys: pa.ChunkedArray, first: int) -> list[int]:
        """Return each row's partition; `first` is the number of the first row.

        A row without a key goes where its number says, in turns.
        """
        texts = pc.cast(keys, pa.string()).to_pylist()
        starts = [settled.first_row for settled in self._settled]
        counts = [settled.partitions for settled in self._settled]
        return [
            (number if text is None else key_hash(text)) % counts[bisect_right(starts, number) - 1]
            for number, text in enumerate(texts, first)
        ]

    def _unsettled_change(self) -> TopicChange | None:
        self._watcher.poll()
        change = self._watcher.newest(self._topic)
        if change is None or change.partitions is None:
            # The rows of a topic that was deleted stay where they are.
            if not self._settled:
                raise UnknownTopic(f"there is no topic {self._topic!r} under {self._root}")
            return None
        if self._settled and change.at <= self._settled[-1].changed_at:
            return None
        return change

    def _settle(self, change: TopicChange) -> None:
        """Settle from which row on the change holds, unless another worker settles first."""
        assert change.partitions is not None
        if self._settled:
            self._rows.look()
        settled = SettledCount(
            topic=self._topic,
            table_id=self._rows.table_id,
            first_row=self._rows.end if self._settled else 0,
            partitions=change.partitions,
            changed_at=change.at,
        )
        row = to_arrow(SETTLED_COUNTS, [settled])
        if self._appender.append(row, self._app_id, len(self._settled)):
            self._settled.append(settled)
        else:
            self._settled = self._read()

    def _read(self) -> list[SettledCount]:
        rows = open_table(self._root, SETTLED_COUNTS).to_pyarrow_table(
            columns=SETTLED_COUNTS.schema.names
        )
        mine = [
            settled
            for settled in from_arrow(SettledCount, rows)
            if (settled.topic, settled.table_id) == (self._topic, self._rows.table_id)
        ]
        return sorted(mine, key=lambda settled: settled.changed_at)
