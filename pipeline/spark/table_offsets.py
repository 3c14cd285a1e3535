"""Conversion of a Delta table's version to offsets of the topic that the table stores."""

from __future__ import annotations

import re

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from group_coordinator.pipeline.delta import local_folder
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.spark.source_offsets import DeltaPosition
from group_coordinator.pipeline.tables.segment_stats import log_end_id
from group_coordinator.pipeline.topics import TableTopics, log_topics

_TOPICS = 'SELECT topic, "table", topic_id, partitions FROM topics WHERE "table" IS NOT NULL'
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
        table = _plain(position.table)
        for topic in log_topics(self._root)[0]:
            if _plain(topic.table) == table:
                return self._of_log(topic.topic, topic.table, position.version)
        catalog = Catalog(self._root)
        for topic_name, uri, topic_id, _ in catalog.query(_TOPICS).rows:
            if _plain(uri) == table:
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

    def _of_log(self, name: str, uri: str, version: int) -> dict[tuple[str, int], int]:
        if version < 1:
            return {}
        try:
            handle = DeltaTable(uri, version=version - 1)
        except TableNotFoundError:
            return {}
        partitions = {int(each["partition"] or 0) for each in handle.partitions()}
        ends = {number: handle.transaction_version(log_end_id(number)) for number in partitions}
        return {(name, number): end for number, end in ends.items() if end is not None}


def _plain(uri: str) -> str:
    """Return a table's URI in normal form, so that URIs of Spark and of this project match."""
    folder = local_folder(uri)
    return uri.rstrip("/") if folder is None else str(folder.resolve())
