"""The row Structs of all tables, and their columns as DuckDB sees them.

This module does not import Arrow, because pyarrow and numpy would slow down commands that only
query DuckDB. `schemas.tables` has the Arrow schemas of the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, inspect

from group_coordinator.schemas.messages import (
    Int32,
    Int64,
    RejectedRequest,
    RequestEvent,
    Response,
    Timestamp,
)
from group_coordinator.schemas.records import CoordinatorEvent, CoordinatorRecord, GroupEvent


class TopicChange(Struct, frozen=True):
    """A row of the `topics` catalogue: a topic's number of partitions from `at` (ms) on.

    The newest row of a topic applies. `partitions` null: the topic was deleted. `at` increases
    strictly from row to row.
    """

    topic: str
    partitions: Int32 | None
    at: Timestamp


class Catalogue(Struct, frozen=True, array_like=True):
    """The state of the table `topics`: the topics that exist, and those that were deleted.

    `partitions` maps each topic to its number of partitions. `deleted` maps each topic that was
    ever deleted to the time of its last deletion (ms); the topic may exist again.
    """

    partitions: dict[str, int]
    deleted: dict[str, int] = {}

    @property
    def deleted_at(self) -> int:
        """The time of the newest deletion of a topic (ms), 0 if no topic was deleted."""
        return max(self.deleted.values(), default=0)


class TopicTable(Struct, frozen=True):
    """A row of `topic_tables`: the Delta table that holds a topic's records.

    The row applies while the row of `topics` that created the topic has the same `at`. `table_id`
    is the id in the table's metadata. Either `key_column` or `partition_column` is set.
    `value_column` null: a record's value is its row as a JSON object. `timestamp_column` null: a
    record has the timestamp of its commit. The topic begins with the rows that the table had in
    `start_version`; null: with version 0.

    `config` not null: gateways append to the table, which has the columns of `TOPIC_RECORDS`;
    `config` holds the topic's configs as a JSON object under Kafka's names.
    """

    topic: str
    topic_id: str
    table: str
    table_id: str
    key_column: str | None
    partition_column: str | None
    value_column: str | None
    timestamp_column: str | None
    start_version: Int64 | None
    at: Timestamp
    config: str | None = None


class TopicIndexEntry(Struct, frozen=True):
    """A row of `topic_index`: maps offsets of a partition to a row group of a file.

    `count` rows of the row group belong to the partition, the first one at `base_offset`, while the
    topic has `partitions` partitions. Timestamps are ms since 1970; `committed_at` is the time of
    the table's commit. `partition_values` is taken from the add action, as JSON. The entries of one
    commit share a `sequence`, which increases by 1 per commit of the topic.

    An entry without a file has one of two meanings. `partition` null: all versions up to `version`
    are indexed. Else: the topic was re-indexed from `version`, and the partition's log starts at
    `base_offset`.
    """

    topic: str
    topic_id: str
    sequence: Int64
    version: Int64
    partition: Int32 | None = None
    file: str | None = None
    row_group: Int32 | None = None
    base_offset: Int64 | None = None
    count: Int64 = 0
    min_timestamp: Int64 | None = None
    max_timestamp: Int64 | None = None
    committed_at: Int64 | None = None
    partitions: Int32 | None = None
    partition_values: str | None = None


class AclChange(Struct, frozen=True):
    """A row of `acls`: an ACL was added or removed (`schemas.acls.AclBinding`).

    The row of an ACL with the greatest `number` applies. The rows of one change share a number.
    `changed_by` is the principal that requested the change from a gateway.
    """

    number: Int64
    added: bool
    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str
    at: Timestamp
    changed_by: str | None = None


class GatewayListener(Struct, frozen=True):
    """A listener of a gateway, and its advertised address."""

    name: str
    host: str
    port: Int32


class GatewayEvent(Struct, frozen=True):
    """A row of `gateways`: a gateway started to serve at an address, or stopped cleanly.

    An address keeps its `broker_id`. The row of an address with the greatest `number` applies.
    `host` and `port` are the address of the first listener. `listeners` null, from an earlier
    release: clients of every listener are sent to `host` and `port`.
    """

    number: Int64
    broker_id: Int32
    host: str
    port: Int32
    stopped: bool
    at: Timestamp
    listeners: tuple[GatewayListener, ...] | None = None


class TableRows(Struct, frozen=True):
    """A table's folder under the root, the Struct of its rows, and its partition columns.

    `partition_by` are columns that are not in the Struct, each a 64-bit integer.
    """

    name: str
    row: type[Struct]
    partition_by: tuple[str, ...] = ()


REQUESTS = TableRows("requests", RequestEvent)
RESPONSES = TableRows("responses", Response)
REJECTED_REQUESTS = TableRows("rejected_requests", RejectedRequest)
# `segment` divides the log as Kafka's segments do: appends go to the newest segment, compaction
# rewrites older ones. Because it is the partition column, the two never touch the same files.
OFFSETS_TOPIC = TableRows("offsets_topic", CoordinatorRecord, ("segment",))
# Records that compaction removed from the log, kept for SQL.
OFFSETS_HISTORY = TableRows("offsets_history", CoordinatorRecord)
GROUP_EVENTS = TableRows("group_events", GroupEvent)
COORDINATORS = TableRows("coordinators", CoordinatorEvent)
# Created on demand: without a catalogue a coordinator accepts any topic name.
TOPICS = TableRows("topics", TopicChange)
# Created with the first topic that is a table. It is separate from `topics`, so that an older
# release, which does not know it, can still read and change `topics`.
TOPIC_TABLES = TableRows("topic_tables", TopicTable)
TOPIC_INDEX = TableRows("topic_index", TopicIndexEntry)
# Created with the first gateway.
GATEWAYS = TableRows("gateways", GatewayEvent)
# Created with the first ACL: without the table every operation is allowed.
ACLS = TableRows("acls", AclChange)
# All tables that a root may have.
ALL = (
    REQUESTS,
    RESPONSES,
    REJECTED_REQUESTS,
    OFFSETS_TOPIC,
    OFFSETS_HISTORY,
    GROUP_EVENTS,
    COORDINATORS,
    TOPICS,
    TOPIC_TABLES,
    TOPIC_INDEX,
    GATEWAYS,
    ACLS,
)


# --- the types of columns -----------------------------------------------------------------------

# The names in SQL of columns that have a reserved word of DuckDB or Spark as their name. The tables
# keep the reserved words, because nodes of release 0.2 may write to them too. For the SQL of that
# release, the last columns in SQL have the reserved words.
SQL_NAMES = {"at": "changed_at", "table": "table_location"}
TIMESTAMP = "TIMESTAMP WITH TIME ZONE"
_INTEGERS = {8: "byte", 16: "short", 32: "integer", 64: "long"}
_SCALARS: dict[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.BytesType: "binary",
    inspect.BoolType: "boolean",
}
_SQL_TYPES = {
    "string": "VARCHAR",
    "binary": "BLOB",
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "timestamp": TIMESTAMP,
}


def delta_fields(row: type[Struct]) -> list[dict[str, Any]]:
    """Return the name and type of each column of a Struct, as in a Delta table's schema."""
    fields: list[dict[str, Any]] = _delta_type(inspect.type_info(row))["fields"]
    return fields


def _delta_type(info: inspect.Type, notes: Mapping[str, Any] | None = None) -> Any:
    """Return the type, or None for a Struct without fields, which has no column."""
    if isinstance(info, inspect.Metadata):
        return _delta_type(info.type, info.extra)
    if isinstance(info, inspect.UnionType):
        (some,) = (each for each in info.types if not isinstance(each, inspect.NoneType))
        return _delta_type(some)
    if isinstance(info, inspect.StructType):
        typed = ((field.name, _delta_type(field.type)) for field in info.fields)
        fields = [{"name": name, "type": type_} for name, type_ in typed if type_ is not None]
        return {"type": "struct", "fields": fields} if fields else None
    if isinstance(info, inspect.VarTupleType):
        return {"type": "array", "elementType": _delta_type(info.item_type)}
    if isinstance(info, inspect.IntType):
        if notes is None:
            raise TypeError(f"an integer field needs a width, as Int32 has: {info}")
        return "timestamp" if notes.get("timestamp") else _INTEGERS[notes["width"]]
    return _SCALARS[type(info)]


def sql_columns(rows: TableRows) -> dict[str, str]:
    """Return the table's columns with their types in DuckDB's SQL."""
    partitions = [{"name": name, "type": "long"} for name in rows.partition_by]
    return sql_columns_of_delta(delta_fields(rows.row) + partitions)


def sql_columns_of_delta(fields: list[dict[str, Any]]) -> dict[str, str]:
    """Return the columns of a Delta table's schema; a type without an SQL name here is `?`."""
    return {field["name"]: _sql_type(field["type"]) for field in fields}


def _sql_type(type_: Any) -> str:
    if isinstance(type_, str):
        return _SQL_TYPES.get(type_, "?")
    if type_["type"] == "array":
        return f"{_sql_type(type_['elementType'])}[]"
    if type_["type"] != "struct":
        return "?"
    columns = sql_columns_of_delta(type_["fields"]).items()
    return "STRUCT(" + ", ".join(f'"{name}" {type_}' for name, type_ in columns) + ")"
