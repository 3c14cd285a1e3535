"""Schemas of the Delta tables, derived from the Structs; conversion of rows to and from Arrow.

A field's type carries its integer width and whether it is a timestamp (`schemas.messages`).
Every column is nullable, so that a broken request can be written, seen and answered; what must not
be null is checked where a request is decoded. A Struct without fields has no column: Parquet has no
empty struct, and `api` already says which answer a row is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from msgspec import Struct, inspect, structs

from schemas.messages import Int32, Int64, RejectedRequest, RequestEvent, Response, Timestamp
from schemas.records import CoordinatorEvent, GroupEvent, Record

_Row = TypeVar("_Row", bound=Struct)

TIMESTAMP = pa.timestamp("us", tz="UTC")
_MILLIS = pa.timestamp("ms", tz="UTC")
# How many rows of one millisecond keep their order: one a microsecond.
MOST_NUMBERED = 1000
_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


class TopicChange(Struct, frozen=True):
    """A row of the `topics` catalogue: a topic's number of partitions from `at` (ms) on.

    The newest row of a topic is in force. `partitions` null: the topic was deleted. `at` rises
    strictly from row to row.
    """

    topic: str
    partitions: Int32 | None
    at: Timestamp


class TopicTable(Struct, frozen=True):
    """A row of `topic_tables`: the Delta table whose rows are a topic's records.

    It is in force while the topic's row that created it in `topics` has the same `at`. `table_id`
    is the id in the table's metadata. Either `key_column` or `partition_column` is set.
    `value_column` null: a record's value is its row as a JSON object. `timestamp_column` null: a
    record's timestamp is that of its commit. `start_version` null: the topic begins with the
    table's version 0, else with the rows that the table had in that version.

    `config` not null: the table is the topic's own, of the columns of `TOPIC_RECORDS`, which
    gateways append to, and `config` has the topic's configs as a JSON object under Kafka's names.
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
    """A row of `topic_index`: which offsets of a partition are in which row group of which file.

    `count` rows of the row group are in the partition, the first of them at `base_offset`, when
    the topic has `partitions` partitions. Timestamps are ms since 1970; `committed_at` is that of
    the table's commit. `partition_values` is the add action's, as JSON. The entries of one commit
    have one `sequence`, which rises by 1 for each topic.

    Without a file an entry says one of two things. `partition` null: every version up to `version`
    is indexed. Else: the topic was indexed anew from `version`, and the partition's log starts at
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

    Of an ACL the row with the greatest `number` counts. The rows of one change share a number.
    `changed_by` is the principal that asked for the change of a gateway.
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


class GatewayEvent(Struct, frozen=True):
    """A row of `gateways`: a gateway began to serve at an address, or stopped in order.

    An address keeps its `broker_id`. Of an address the row with the greatest `number` counts.
    """

    number: Int64
    broker_id: Int32
    host: str
    port: Int32
    stopped: bool
    at: Timestamp


class Table(Struct, frozen=True):
    """A Delta table: its folder under the root, its columns, and its partition columns.

    `required` are the columns that the table of every release has. A column that a later release
    adds is not among them: older tables lack it, and older rows have null there.
    """

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


# --- types --------------------------------------------------------------------------------------


def arrow_schema(struct: type[Struct]) -> pa.Schema:
    """Return the Arrow schema of a Struct's fields, in their order; all nullable."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return pa.schema(_fields(info))


def table_of(name: str, struct: type[Struct]) -> Table:
    """Return the table of a Struct's rows. A field without a default is a required column.

    So a field that a later release adds must be `X | None` and have a default: a table of an
    earlier release has no such column, and its rows have null there once it has one.
    """
    required = tuple(field.name for field in structs.fields(struct) if field.required)
    return Table(name, arrow_schema(struct), required=required)


def _fields(struct: inspect.StructType) -> list[pa.Field]:
    typed = ((field.name, _arrow_type(field.type)) for field in struct.fields)
    return [pa.field(name, type_) for name, type_ in typed if type_ is not None]


def _arrow_type(info: inspect.Type, notes: Mapping[str, Any] | None = None) -> pa.DataType | None:
    """Return the Arrow type, or None where there is nothing to store."""
    if isinstance(info, inspect.Metadata):
        return _arrow_type(info.type, info.extra)
    if isinstance(info, inspect.UnionType):
        (some,) = (each for each in info.types if not isinstance(each, inspect.NoneType))
        return _arrow_type(some)
    if isinstance(info, inspect.StructType):
        fields = _fields(info)
        return pa.struct(fields) if fields else None
    if isinstance(info, inspect.VarTupleType):
        # "element" is what Delta calls an array's items.
        return pa.list_(pa.field("element", _arrow_type(info.item_type)))
    if isinstance(info, inspect.IntType):
        if notes is None:
            raise TypeError(
                "an integer field needs a width: Int8, Int16, Int32, Int64 or Timestamp"
            )
        return TIMESTAMP if notes.get("timestamp") else _INTEGERS[notes["width"]]
    if isinstance(info, inspect.StrType):
        return pa.string()
    if isinstance(info, inspect.BytesType):
        return pa.binary()
    if isinstance(info, inspect.BoolType):
        return pa.bool_()
    raise TypeError(f"no column type for {info}")


# --- the tables ---------------------------------------------------------------------------------

REQUESTS = table_of("requests", RequestEvent)
RESPONSES = table_of("responses", Response)
REJECTED_REQUESTS = table_of("rejected_requests", RejectedRequest)
# `segment` divides the log as Kafka's segments do: appends go to the newest, compaction rewrites
# the older ones. As the partition column it keeps the two from touching the same files.
OFFSETS_TOPIC = Table(
    "offsets_topic",
    arrow_schema(Record).append(pa.field("segment", pa.int64())),
    partition_by=("segment",),
    required=(*table_of("", Record).required, "segment"),
)
# Records that compaction took out of the log, kept for SQL.
OFFSETS_HISTORY = table_of("offsets_history", Record)
GROUP_EVENTS = table_of("group_events", GroupEvent)
COORDINATORS = table_of("coordinators", CoordinatorEvent)
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        REQUESTS,
        RESPONSES,
        REJECTED_REQUESTS,
        OFFSETS_TOPIC,
        OFFSETS_HISTORY,
        GROUP_EVENTS,
        COORDINATORS,
    )
}
# Made only on demand: without a catalogue a coordinator accepts any topic's name.
TOPICS = table_of("topics", TopicChange)
# Made with the first topic that is a table. A table of its own, and not columns of `topics`: an
# older release, which knows neither, goes on reading and changing `topics`.
TOPIC_TABLES = table_of("topic_tables", TopicTable)
TOPIC_INDEX = table_of("topic_index", TopicIndexEntry)
# Made with the first gateway.
GATEWAYS = table_of("gateways", GatewayEvent)
# Made with the first ACL: without the table everything is allowed to everybody.
ACLS = table_of("acls", AclChange)
ON_DEMAND = (TOPICS, TOPIC_TABLES, TOPIC_INDEX, GATEWAYS, ACLS)
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
# The table of a topic that has a table of its own, one for each: the columns of Spark's Kafka
# source, so that code which was written for that source reads it.
TOPIC_RECORDS = Table(
    "topic_records",
    pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", TIMESTAMP),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.field("element", _HEADER))),
        ]
    ),
    partition_by=("partition",),
)


# --- rows to columns ----------------------------------------------------------------------------


def to_arrow(
    table: Table, rows: Sequence[Struct], columns: Mapping[str, pa.Array] | None = None
) -> pa.Table:
    """Turn Structs into an Arrow table with the table's schema.

    `columns` gives the columns that are not, or not yet, in the Structs. The table is built column
    by column: nine of a response's ten body columns are null, and a null column costs nothing.
    """
    given = columns or {}
    arrays = [
        given[field.name] if field.name in given else _column(field, rows) for field in table.schema
    ]
    return pa.Table.from_arrays(arrays, schema=table.schema)


def to_requests(requests: Sequence[RequestEvent]) -> pa.Table:
    """Turn requests into rows of the `requests` table that keep their order.

    A take-over orders the requests that wait by `sent_at`, so those of one millisecond are numbered
    in its microseconds.
    """
    times = [(request.sent_at, None) for request in requests]
    return to_arrow(REQUESTS, requests, {"sent_at": _numbered_times(times)})


def to_events(events: Sequence[GroupEvent]) -> pa.Table:
    """Turn events into rows of the `group_events` table that keep their order within a group.

    All events of a batch have the batch's time, so a group's are numbered in the microseconds of
    `at`.
    """
    times = [(event.at, event.group_id) for event in events]
    return to_arrow(GROUP_EVENTS, events, {"at": _numbered_times(times)})


def _numbered_times(times: Sequence[tuple[int | None, str | None]]) -> pa.Array:
    """Turn pairs of a time (ms) and a key into timestamps that rise, for each key, as given."""
    micros: list[int | None] = []
    counts: dict[tuple[int, str | None], int] = {}
    for at, key in times:
        if at is None:
            micros.append(None)
            continue
        before = counts.get((at, key), 0)
        counts[at, key] = before + 1
        # From the thousandth on they share a microsecond: the next one is another millisecond's.
        micros.append(at * 1000 + min(before, MOST_NUMBERED - 1))
    return pa.array(micros, TIMESTAMP)


def _column(field: pa.Field, rows: Sequence[Any]) -> pa.Array:
    return _array(field.type, list(map(attrgetter(field.name), rows)))


def _array(type_: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_struct(type_):
        return _struct_array(type_, values)
    if pa.types.is_list(type_):
        return _list_array(type_, values)
    if pa.types.is_timestamp(type_):
        return pa.array(values, _MILLIS).cast(type_)
    return pa.array(values, type_)


def _struct_array(type_: pa.StructType, values: list[Any]) -> pa.Array:
    present = [value for value in values if value is not None]
    if not present:
        return pa.nulls(len(values), type_)
    getters: list[Callable[[Any], Any]] = [attrgetter(field.name) for field in type_]
    if len(present) == len(values):
        children = [
            _array(f.type, list(map(get, values))) for f, get in zip(type_, getters, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(type_))
    children = [
        _array(field.type, [None if value is None else get(value) for value in values])
        for field, get in zip(type_, getters, strict=True)
    ]
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)


def _list_array(type_: pa.ListType, values: list[Any]) -> pa.Array:
    offsets: list[int | None] = []
    items: list[Any] = []
    for value in values:
        offsets.append(None if value is None else len(items))
        if value is not None:
            items.extend(value)
    offsets.append(len(items))
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), _array(type_.value_type, items), type=type_
    )


# --- columns to rows ----------------------------------------------------------------------------


def from_arrow(struct: type[_Row], rows: pa.Table) -> list[_Row]:
    """Turn rows of a table into its Structs; the inverse of `to_arrow`.

    Times are ms again. A body without fields has no column and becomes its default. Columns that
    the Struct does not have are ignored. Raises msgspec.ValidationError for a row without a value
    that the Struct requires.
    """
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            millis = rows.column(place).cast(_MILLIS, safe=False).cast(pa.int64())
            rows = rows.set_column(place, field.name, millis)
    return msgspec.convert(rows.to_pylist(), list[struct])  # type: ignore[valid-type]
