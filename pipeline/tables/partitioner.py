"""Which partition a row belongs to: Kafka's default partitioner over the text of one column.

A row's partition is settled when the row is committed, as a record's is when it is sent: by the
number of partitions that the topic had then. So a topic that grows moves no row to another
partition, and what a group has committed stays true.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from kafka.partitioner.default import murmur2

from pipeline.tables.store import open_table
from schemas.tables import TOPICS, TopicChange, from_arrow

_POSITIVE = 0x7FFFFFFF


@lru_cache(maxsize=1 << 16)
def key_hash(text: str) -> int:
    """The number that decides a key's partition. Source: Kafka's BuiltInPartitioner."""
    return int(murmur2(text.encode())) & _POSITIVE


class Partitioner:
    """The partitions of a topic's rows; `changes` are its numbers of partitions, from when (ms) on.

    Rows from before the first one are partitioned by it.
    """

    def __init__(self, changes: list[tuple[int, int]]) -> None:
        self._since = [at for at, _ in changes]
        self._counts = [count for _, count in changes]

    def count_at(self, committed_at: int) -> int:
        """How many partitions the topic had."""
        return self._counts[max(0, bisect_right(self._since, committed_at) - 1)]

    def partitions(
        self, keys: pa.ChunkedArray, committed_at: pa.ChunkedArray, first: int
    ) -> list[int]:
        """Each row's partition. A row without a key goes where its number says, in turns.

        `first` is the number of the first row.
        """
        texts = pc.cast(keys, pa.string()).to_pylist()
        times = committed_at.to_pylist()
        return [
            (first + i if text is None else key_hash(text)) % self.count_at(time)
            for i, (text, time) in enumerate(zip(texts, times, strict=True))
        ]


def read_partitioner(root: str, topic: str) -> Partitioner:
    """The partitioner of a topic, from the catalogue's changes so far.

    Raises deltalake's TableNotFoundError, and ValueError if the topic never was.
    """
    rows = open_table(root, TOPICS).to_pyarrow_table(columns=TOPICS.schema.names)
    changes = [
        (change.at, change.partitions)
        for change in sorted(from_arrow(TopicChange, rows), key=lambda change: change.at)
        if change.topic == topic and change.partitions
    ]
    if not changes:
        raise ValueError(f"there never was a topic {topic!r}")
    return Partitioner(changes)
