"""The offsets of topics at which the sources of a Spark streaming query stand.

A source's end offset is decoded from the query's progress. The version of a Delta source is then
converted to offsets of the topic that the table stores.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from msgspec import Struct

from group_coordinator.pipeline.delta import local_folder
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.spark.topic_offsets import TopicOffsets, decode_topic_offsets
from group_coordinator.pipeline.tables import log_end_id
from group_coordinator.pipeline.topics import TableTopics, log_topics

_DELTA = re.compile(r"DeltaSource\[(?P<table>.*)\]", re.DOTALL)
_KAFKA = re.compile(r"KafkaV?\d*\[")
# The description of a Python program's source is the name of Spark's class.
_PYTHON = re.compile(r"[\w.]*\bPythonMicroBatchStream")
_RATE = re.compile(r"RateStream|RatePerMicroBatch")
# The topic of rate sources, because Spark gives these sources no name.
RATE_TOPIC = "rate"


class DeltaPosition(Struct, frozen=True):
    """The position of a Delta source: it has read all versions of the table before `version`."""

    table: str
    version: int


class SourceOffsets(Struct, frozen=True):
    """The position of a source: for a topic and partition, the offset of the next record."""

    offsets: dict[tuple[str, int], int]


class _DeltaOffset(Struct, rename="camel"):
    reservoir_version: int
    is_starting_version: bool = False


def source_offsets(position: TopicOffsets) -> SourceOffsets:
    """Return a position in one topic as that of a source."""
    return SourceOffsets(
        {(position.topic, number): offset for number, offset in position.offsets.items()}
    )


def decode_source_offset(
    description: str, end_offset: str | None
) -> SourceOffsets | DeltaPosition | None:
    """Return a source's position, from the `description` and `endOffset` of its progress.

    Return None if the source has read nothing, or is of an unknown kind. Return None also while a
    Delta source reads its table's initial snapshot, because a position within it is not a version.
    A version that is read in part counts as unread.
    """
    try:
        told: Any = msgspec.json.decode(end_offset or "null")
        delta = _DELTA.match(description)
        if told is None:
            return None
        if delta is not None:
            position = msgspec.convert(told, _DeltaOffset)
            if position.is_starting_version:
                return None
            return DeltaPosition(delta["table"], position.reservoir_version)
        if _KAFKA.match(description):
            topics = msgspec.convert(told, dict[str, dict[int, int]], strict=False)
            return SourceOffsets(
                {
                    (topic, partition): offset
                    for topic, partitions in topics.items()
                    for partition, offset in partitions.items()
                }
            )
        if _PYTHON.match(description):
            read = decode_topic_offsets(told)
            # A position without an id is that of another program's source.
            return None if read.topic_id is None else source_offsets(read)
        if _RATE.match(description):
            offset = told["offset"] if isinstance(told, dict) else told
            return SourceOffsets({(RATE_TOPIC, 0): msgspec.convert(offset, int)})
    except (msgspec.DecodeError, KeyError):
        return None
    return None


_TOPICS = (
    "SELECT topic, table_location, topic_id, partitions FROM topics "
    "WHERE table_location IS NOT NULL"
)
_ENDS = (
    'SELECT "partition", max(base_offset + "count") FROM topic_index '
    'WHERE topic_id = ? AND version < ? AND "partition" IS NOT NULL GROUP BY "partition"'
)
_NO_NAME = re.compile(r"[^a-zA-Z0-9._-]")


class TableOffsets:
    """A map from versions of tables to offsets of a root's topics. Not thread-safe."""

    def __init__(self, root: str) -> None:
        self._root = root
        # One for each topic, with the index of this topic only.
        self._topics: dict[str, TableTopics] = {}

    def of(self, position: DeltaPosition) -> dict[tuple[str, int], int]:
        """Return the next offset of each topic and partition of the table at a position.

        The next offset is the one after the last row of the versions that were read. A table that
        stores no topic counts as partition 0 of a topic with the name of the table's folder; its
        next offset is the next version. Raises Failure, DeltaError and OSError.
        """
        table = _normalized(position.table)
        for topic in log_topics(self._root)[0]:
            if _normalized(topic.table) == table:
                return self._log_offsets(topic.topic, topic.table, position.version)
        catalog = Catalog(self._root)
        for topic_name, uri, topic_id, _ in catalog.query(_TOPICS).rows:
            if _normalized(uri) == table:
                self._index(topic_name)
                ends = Catalog(self._root).query(_ENDS, [topic_id, position.version]).rows
                return {(topic_name, number): end for number, end in ends}
        name = _NO_NAME.sub("_", table.rpartition("/")[2])[:249]
        return {(name, 0): position.version}

    def _index(self, topic: str) -> None:
        """Index the new rows of a user's table, as a consumer of the topic does."""
        if topic not in self._topics:
            self._topics[topic] = TableTopics(self._root, only=[topic])
        self._topics[topic].catch_up()
        self._topics[topic].check_follows(topic)

    def _log_offsets(self, name: str, uri: str, version: int) -> dict[tuple[str, int], int]:
        if version < 1:
            return {}
        try:
            handle = DeltaTable(uri, version=version - 1)
        except TableNotFoundError:
            return {}
        partitions = {int(each["partition"] or 0) for each in handle.partitions()}
        ends = {number: handle.transaction_version(log_end_id(number)) for number in partitions}
        return {(name, number): end for number, end in ends.items() if end is not None}


def _normalized(uri: str) -> str:
    """Return a table's URI in normal form, so that URIs of Spark and of this project match."""
    folder = local_folder(uri)
    return uri.rstrip("/") if folder is None else str(folder.resolve())
