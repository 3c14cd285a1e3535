"""Definitions of topics with tables: the rows of `topic_tables`.

A definition is written before the topic's row in the catalogue, with the same `at` (ms). It is in
force only with such a row. Otherwise its process was killed in between, or another process created
the topic first.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from msgspec import structs

from group_coordinator.pipeline.delta import Appender, UnsupportedTable, local_folder, open_delta
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.tables import (
    CHECKPOINT_INTERVAL,
    TableMissing,
    TopicWatcher,
    check_name,
    check_new_topic,
    create_topic,
    creations_of,
    ensure_table,
    has_mark,
    has_table,
    read_changes,
    read_table,
    set_mark,
    table_uri,
)
from group_coordinator.pipeline.topics.columns import Columns
from group_coordinator.pipeline.topics.segments import DELETED
from group_coordinator.pipeline.topics.table_log import check_readable, first_version
from group_coordinator.pipeline.topics.topic_config import encode_config
from group_coordinator.pipeline.topics.topic_errors import InvalidTable
from group_coordinator.schemas.rows import TopicChange, TopicTable
from group_coordinator.schemas.tables import (
    TOPIC_RECORDS,
    TOPIC_TABLES,
    TOPICS,
    from_arrow,
    to_arrow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

# How long a Spark stream that reads a topic's own table may be down.
_LOG_RETENTION = "interval 1 days"
# The catalogue's transaction identifier that says that definitions exist: if they are missing, they
# are lost.
_DEFINED = "has-definitions"


def create_table_topic(
    root: str,
    name: str,
    partitions: int,
    table: str,
    *,
    key: str | None = None,
    partition: str | None = None,
    value: str | None = None,
    timestamp: str | None = None,
) -> TopicTable:
    """Create a topic with the rows of a Delta table as records; return its definition.

    Either Kafka's partitioner chooses a record's partition by the column `key`, or the column
    `partition` has its number; exactly one is given. `value` None: a record's value is its row as
    JSON. `timestamp` None: a record has the timestamp of its commit.

    Raises InvalidTable, InvalidTopic, InvalidPartitions, TopicExists, TableMissing.
    """
    check_name(name)
    if (key is None) == (partition is None):
        raise InvalidTable("a topic that is a table needs either a key or a partition column")
    folder = local_folder(table)
    uri = table if folder is None else str(folder.resolve())
    try:
        handle = open_delta(uri)
    except TableNotFoundError as error:
        raise InvalidTable(f"there is no Delta table at {uri}") from error
    check_readable(handle)
    topic = TopicTable(
        topic=name,
        topic_id=str(uuid.uuid4()),
        table=uri,
        table_id=str(handle.metadata().id),
        key_column=key,
        partition_column=partition,
        value_column=value,
        timestamp_column=timestamp,
        start_version=first_version(uri, handle),
        at=0,
    )
    Columns(topic, column_types(handle)).check()
    _ensure_definitions(root)
    return _define(root, topic, partitions)


def create_log_topic(
    root: str,
    name: str,
    partitions: int,
    config: Mapping[str, str | None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> TopicTable:
    """Create a topic with its own table, to which gateways append; return its definition.

    The table is created now, so that a Spark job may read it before the first record. `config` has
    Kafka's topic configs as strings. `check` is called before the definition is written and raises
    to cancel. Raises InvalidConfig, InvalidTopic, InvalidPartitions, TopicExists, TableMissing.
    """
    text = check_log_topic(root, name, partitions, config)
    _ensure_definitions(root)
    topic = _make_table(root, name, text)
    return _define(root, topic, partitions, check)


def _ensure_definitions(root: str) -> None:
    is_there = has_table(root, TOPIC_TABLES)
    # Checked again, because the folder may have been missing for a moment.
    if not is_there and has_mark(root, TOPICS, _DEFINED) and not has_table(root, TOPIC_TABLES):
        raise TableMissing(
            f"the table {table_uri(root, TOPIC_TABLES)} is missing, but the root has topics with "
            "tables: restore it"
        )
    ensure_table(root, TOPIC_TABLES)


def _define(
    root: str, topic: TopicTable, partitions: int, check: Callable[[], None] = lambda: None
) -> TopicTable:
    """Create a topic with its definition; return the definition with its `at`.

    `at` identifies the definition in force. It differs between definitions of one name, even if two
    processes create the topic at once: otherwise gateways would append to both tables.
    """
    appender = Appender(table_uri(root, TOPIC_TABLES))
    defines = f"defines-{topic.topic}"

    def define(at: int) -> int:
        nonlocal topic
        check()
        set_mark(root, TOPICS, _DEFINED)
        while True:
            topic = structs.replace(topic, at=max(at, appender.last_version(defines) + 1))
            if appender.append(to_arrow(TOPIC_TABLES, [topic]), defines, topic.at):
                return topic.at
            appender.forget()

    create_topic(root, topic.topic, partitions, define)
    return topic


def mark_deleted(root: str, name: str, created: int) -> None:
    """Commit to a topic's own table that the topic is deleted; do nothing if it has none.

    Appenders in other processes read the table before each commit, but may read the catalogue
    later. So call this before the topic is removed from the catalogue; it may be repeated.
    `created` is the `at` of the row that created the topic: a later topic of the same name is not
    marked. A table that is missing, or to which this release cannot append, is not marked. Raises
    DeltaError, OSError and Failure.
    """
    for topic in read_definitions(root):
        if topic.topic == name and topic.at == created and topic.config is not None:
            try:
                Appender(topic.table).append(None, DELETED, 1)
            except (TableNotFoundError, UnsupportedTable) as error:
                log.warning(
                    "topic %s is deleted; its table could not be marked as deleted: %s",
                    name,
                    first_line(error),
                )


def check_log_topic(
    root: str, name: str, partitions: int, config: Mapping[str, str | None] | None = None
) -> str:
    """Raise the errors that `create_log_topic` would raise now; return the configs as JSON."""
    text = encode_config(config or {})
    check_new_topic(root, name, partitions)
    return text


def _make_table(root: str, name: str, config: str) -> TopicTable:
    topic_id = str(uuid.uuid4())
    # Relative to the root, so that a root may be moved.
    table = f"{TOPIC_RECORDS.name}/{name}-{topic_id[:8]}"
    handle = DeltaTable.create(
        _own_uri(root, table),
        TOPIC_RECORDS.schema,
        partition_by=list(TOPIC_RECORDS.partition_by),
        configuration={
            "delta.checkpointInterval": CHECKPOINT_INTERVAL,
            "delta.logRetentionDuration": _LOG_RETENTION,
        },
    )
    return TopicTable(
        topic=name,
        topic_id=topic_id,
        table=table,
        table_id=str(handle.metadata().id),
        key_column="key",
        partition_column="partition",
        value_column="value",
        timestamp_column="timestamp",
        start_version=None,
        at=0,
        config=config,
    )


def _own_uri(root: str, table: str) -> str:
    return f"{root.rstrip('/')}/{table}"


def read_definitions(root: str) -> list[TopicTable]:
    """Return all definitions, in force or not; tables as absolute URIs.

    Raises deltalake's TableNotFoundError if the table existed and is missing now, for example
    during a remount: otherwise every topic would seem to have no records.
    """
    try:
        rows = read_table(root, TOPIC_TABLES)
    except TableNotFoundError:
        if has_table(root, TOPIC_TABLES) or has_mark(root, TOPICS, _DEFINED):
            raise
        return []
    return [
        each if each.config is None else structs.replace(each, table=_own_uri(root, each.table))
        for each in from_arrow(TopicTable, rows)
    ]


def log_topics(root: str) -> tuple[list[TopicTable], list[tuple[TopicTable, int]]]:
    """Return the topics with their own tables that exist, and those that do not exist (any more).

    The second list has the time (ms) at which each topic was deleted, or was defined if it was
    never created. Tables are absolute URIs. Raises deltalake's TableNotFoundError if the
    definitions or the catalogue are lost.
    """
    defined = [each for each in read_definitions(root) if each.config is not None]
    changes = read_changes(root) if defined else []
    created = creations_of(changes, {})
    in_force = {each.topic: each for each in defined if created.get(each.topic) == each.at}
    live = {each.table for each in in_force.values()}
    dead = [each for each in defined if each.table not in live]
    return list(in_force.values()), [(each, _deleted_at(each, changes)) for each in dead]


def _deleted_at(topic: TopicTable, changes: list[TopicChange]) -> int:
    return min(
        (
            change.at
            for change in changes
            if change.topic == topic.topic and change.partitions is None and change.at > topic.at
        ),
        default=topic.at,
    )


def column_types(handle: DeltaTable) -> dict[str, pa.DataType]:
    """Return the type of each column of a table."""
    return {field.name: field.type for field in pa.schema(handle.schema().to_arrow())}


class Definitions:
    """A follower of the topics of a root that have tables. For one thread at a time."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._watcher = TopicWatcher(root)
        self._seen = 0
        # Replaced in one assignment, because other threads read both maps: a topic without its
        # definition would seem to have no records.
        self._known: tuple[dict[str, int], dict[str, TopicTable]] = {}, {}
        self.dead: set[str] = set()

    @property
    def catalogue(self) -> dict[str, int]:
        """The number of partitions of each topic of the catalogue, with a table or without."""
        return self._known[0]

    @property
    def topics(self) -> dict[str, TopicTable]:
        """The definition of each topic with a table."""
        return self._known[1]

    @property
    def counts(self) -> dict[str, int]:
        """The number of partitions of each topic with a table."""
        counts, topics = self._known
        return {name: counts[name] for name in topics if name in counts}

    def find(self, topic: str) -> tuple[int, TopicTable | None] | None:
        """Return a topic's number of partitions and its definition (None: it has no table).

        Returns None if there is no such topic. May be called by any thread.
        """
        counts, topics = self._known
        return (counts[topic], topics.get(topic)) if topic in counts else None

    def poll(self) -> bool:
        """Read changes; return whether there were any. One attempt to open a file."""
        self._watcher.poll()
        seen, created = self._watcher.changes, self._watcher.created
        if seen == self._seen:
            return False
        known = read_definitions(self._root)
        self._seen = seen
        topics = {each.topic: each for each in known if created.get(each.topic) == each.at}
        self._known = self._watcher.counts or {}, topics
        live = {each.topic_id for each in topics.values()}
        self.dead = {each.topic_id for each in known} - live
        return True
