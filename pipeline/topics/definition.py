"""Topics that are tables: their definitions, made once and followed.

A definition is a row of `topic_tables`, written before the topic's row in the catalogue. The two
have the same `at`: a definition whose topic was not created after all, because its creator was
killed in between or another one was first, is in force for nobody.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from msgspec import structs

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.protocol import UnsupportedTable
from group_coordinator.pipeline.delta.table import local_folder, open_delta
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.tables.marks import has_mark, set_mark
from group_coordinator.pipeline.tables.store import (
    CHECKPOINT_INTERVAL,
    TableMissing,
    ensure_table,
    has_table,
    read_table,
    table_uri,
)
from group_coordinator.pipeline.tables.topic_watcher import TopicWatcher
from group_coordinator.pipeline.tables.topics import (
    check_name,
    check_new_topic,
    create_topic,
    creations_of,
    read_changes,
)
from group_coordinator.pipeline.topics.columns import Columns
from group_coordinator.pipeline.topics.errors import InvalidTable
from group_coordinator.pipeline.topics.segments import DELETED
from group_coordinator.pipeline.topics.table_log import check_readable, first_version
from group_coordinator.pipeline.topics.topic_config import encode_config
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

# A Spark stream that reads a topic's own table may be down for as long.
_LOG_RETENTION = "interval 1 days"
# The catalogue's transaction that says that there are definitions: gone, they are not none.
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
    """Create a topic whose records are the rows of a Delta table; returns its definition.

    A record's partition is that of the column `key` by Kafka's partitioner, or the number in the
    column `partition`: exactly one of the two is given. `value` None: a record's value is its row
    as JSON. `timestamp` None: a record's timestamp is its commit's.

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
    """Create a topic with a table of its own, which gateways append to; returns its definition.

    Its table is made with it, so that a Spark job may begin to read before anything is produced.
    `config`: Kafka's topic configs, as texts. Raises InvalidConfig, InvalidTopic,
    InvalidPartitions, TopicExists, TableMissing.
    """
    text = check_log_topic(root, name, partitions, config)
    _ensure_definitions(root)
    topic = _make_table(root, name, text)
    return _define(root, topic, partitions, check)


def _ensure_definitions(root: str) -> None:
    is_there = has_table(root, TOPIC_TABLES)
    # The second look is for a folder that was away for one read.
    if not is_there and has_mark(root, TOPICS, _DEFINED) and not has_table(root, TOPIC_TABLES):
        raise TableMissing(
            f"the root has topics with tables, and {table_uri(root, TOPIC_TABLES)}, which says "
            "where they are, cannot be found: bring it back"
        )
    ensure_table(root, TOPIC_TABLES)


def _define(
    root: str, topic: TopicTable, partitions: int, check: Callable[[], None] = lambda: None
) -> TopicTable:
    """Create a topic with its definition; returns the definition with its time.

    By its time a definition is known to be that of a topic of the catalogue. So no two definitions
    of one name have the same time, whoever makes them: gateways would append to either one's table.
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
    """Commit to a topic's own table that the topic is deleted; do nothing for one without.

    `created` is the `at` of the row that created the topic: one that was made anew meanwhile, under
    the same name, goes on. To be done before the topic is taken out of the catalogue, and as often
    as one likes. Appenders in other processes read the table before they commit to it, and may read
    the catalogue later. A table that is lost, or that nobody here can append to, needs no mark.
    Raises DeltaError, OSError and Failure.
    """
    for topic in read_definitions(root):
        if topic.topic == name and topic.at == created and topic.config is not None:
            try:
                Appender(topic.table).append(None, DELETED, 1)
            except (TableNotFoundError, UnsupportedTable) as error:
                log.warning("topic %s is deleted without its table: %s", name, first_line(error))


def check_log_topic(
    root: str, name: str, partitions: int, config: Mapping[str, str | None] | None = None
) -> str:
    """Raise what `create_log_topic` would raise now; returns the configs as JSON."""
    text = encode_config(config or {})
    check_new_topic(root, name, partitions)
    return text


def _make_table(root: str, name: str, config: str) -> TopicTable:
    topic_id = str(uuid.uuid4())
    # Within the root, so that a root may be moved.
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
    """Return every definition that was written, in force or not; tables as absolute URIs.

    Raises deltalake's TableNotFoundError for a table that is gone, or was away for a moment, as
    when a folder is mounted anew: without it every topic would seem to have no records.
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
    """Return the topics with tables of their own: those in force, and those that are not.

    The latter with the time of their deletion, ms, or of the definition if the topic was never
    created. Tables are absolute URIs. Raises deltalake's TableNotFoundError where there are
    definitions and no catalogue: it is made before the first of them, so it is away.
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
    """The topics of a root that are tables, as they come and go; for one thread at a time."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._watcher = TopicWatcher(root)
        self._seen = 0
        # Exchanged at once, also for other threads: a topic whose definition was not read, or is
        # gone already, would seem to have no records.
        self._known: tuple[dict[str, int], dict[str, TopicTable]] = {}, {}
        self.dead: set[str] = set()

    @property
    def catalogue(self) -> dict[str, int]:
        """The number of partitions of each topic of the catalogue, with a table or without."""
        return self._known[0]

    @property
    def topics(self) -> dict[str, TopicTable]:
        """The definition of each topic that is a table."""
        return self._known[1]

    @property
    def counts(self) -> dict[str, int]:
        """Each topic's number of partitions, of those that are tables."""
        counts, topics = self._known
        return {name: counts[name] for name in topics if name in counts}

    def find(self, topic: str) -> tuple[int, TopicTable | None] | None:
        """A topic's number of partitions and its definition, None for neither; for any thread."""
        counts, topics = self._known
        return (counts[topic], topics.get(topic)) if topic in counts else None

    def poll(self) -> bool:
        """Look for changes; return whether there are any. One attempt to open a file."""
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
