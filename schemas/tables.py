"""Schemas of the Delta tables, derived from the Structs; conversion of rows to and from Arrow.

Every column is nullable, so that a malformed request can be written, seen and answered; required
fields are checked when a request is decoded. A Struct without fields has no column, because Parquet
has no empty struct; the column `api` identifies such answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from msgspec import Struct, structs

from group_coordinator.schemas import rows as stored
from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.records import GroupEvent
from group_coordinator.schemas.rows import TableRows

_Row = TypeVar("_Row", bound=Struct)

TIMESTAMP = pa.timestamp("us", tz="UTC")
_MILLIS = pa.timestamp("ms", tz="UTC")
# The number of rows in one millisecond that keep their order: one per microsecond.
MOST_NUMBERED = 1000
# Types of Delta's schemas.
_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "timestamp": TIMESTAMP,
}


class Table(Struct, frozen=True):
    """A Delta table: its folder under the root, its columns, and its partition columns.

    `required` are the columns that the tables of all releases have. A column that a later release
    adds is not required: older tables lack it, and older rows have null there.
    """

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


# --- types --------------------------------------------------------------------------------------


def arrow_schema(struct: type[Struct]) -> pa.Schema:
    """Return the Arrow schema of a Struct's fields, in their order; all nullable."""
    return pa.schema(_fields(stored.delta_fields(struct)))


def table_of(rows: TableRows) -> Table:
    """Return the table with its Arrow schema; a field without a default is a required column.

    So a field that a later release adds must be `X | None` and have a default.
    """
    required = [field.name for field in structs.fields(rows.row) if field.required]
    schema = arrow_schema(rows.row)
    for name in rows.partition_by:
        schema = schema.append(pa.field(name, pa.int64()))
    return Table(rows.name, schema, rows.partition_by, (*required, *rows.partition_by))


def _fields(fields: list[dict[str, Any]]) -> list[pa.Field]:
    return [pa.field(field["name"], _arrow_type(field["type"])) for field in fields]


def _arrow_type(type_: Any) -> pa.DataType:
    if isinstance(type_, str):
        return _TYPES[type_]
    if type_["type"] == "array":
        # "element" is what Delta calls an array's items.
        return pa.list_(pa.field("element", _arrow_type(type_["elementType"])))
    return pa.struct(_fields(type_["fields"]))


# --- the tables ---------------------------------------------------------------------------------

REQUESTS = table_of(stored.REQUESTS)
RESPONSES = table_of(stored.RESPONSES)
REJECTED_REQUESTS = table_of(stored.REJECTED_REQUESTS)
OFFSETS_TOPIC = table_of(stored.OFFSETS_TOPIC)
OFFSETS_HISTORY = table_of(stored.OFFSETS_HISTORY)
GROUP_EVENTS = table_of(stored.GROUP_EVENTS)
COORDINATORS = table_of(stored.COORDINATORS)
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
TOPICS = table_of(stored.TOPICS)
TOPIC_TABLES = table_of(stored.TOPIC_TABLES)
TOPIC_INDEX = table_of(stored.TOPIC_INDEX)
GATEWAYS = table_of(stored.GATEWAYS)
ACLS = table_of(stored.ACLS)
ON_DEMAND = (TOPICS, TOPIC_TABLES, TOPIC_INDEX, GATEWAYS, ACLS)
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
# The table of a topic to which gateways append, one per topic. It has the columns of Spark's Kafka
# source, so that code written for that source can read it.
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

    `columns` gives columns that the Structs lack, or that replace theirs. The table is built column
    by column, because nine of a response's ten body columns are null, and a null column costs
    nothing.
    """
    given = columns or {}
    arrays = [
        given[field.name] if field.name in given else _column(field, rows) for field in table.schema
    ]
    return pa.Table.from_arrays(arrays, schema=table.schema)


def to_requests(requests: Sequence[RequestEvent]) -> pa.Table:
    """Turn requests into rows of the `requests` table that keep their order.

    A take-over orders waiting requests by `sent_at`, so its microseconds number the requests of one
    millisecond.
    """
    times = [(request.sent_at, None) for request in requests]
    return to_arrow(REQUESTS, requests, {"sent_at": _numbered_times(times)})


def to_events(events: Sequence[GroupEvent]) -> pa.Table:
    """Turn events into rows of the `group_events` table that keep their order within a group.

    All events of a batch have the batch's time, so the microseconds of `at` number a group's
    events.
    """
    times = [(event.at, event.group_id) for event in events]
    return to_arrow(GROUP_EVENTS, events, {"at": _numbered_times(times)})


def _numbered_times(times: Sequence[tuple[int | None, str | None]]) -> pa.Array:
    """Turn pairs of a time (ms) and a key into timestamps that keep the order of each key."""
    micros: list[int | None] = []
    counts: dict[tuple[int, str | None], int] = {}
    for at, key in times:
        if at is None:
            micros.append(None)
            continue
        before = counts.get((at, key), 0)
        counts[at, key] = before + 1
        # From the thousandth on they share a microsecond: the next belongs to another millisecond.
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


@cache
def _nullable(struct: type[Struct]) -> tuple[str, ...]:
    """Return the fields that default to None."""
    return tuple(field.name for field in structs.fields(struct) if field.default is None)


def _is_null(rows: pa.Table, name: str) -> bool:
    return name in rows.column_names and rows.column(name).null_count == rows.num_rows > 0


def from_arrow(struct: type[_Row], rows: pa.Table) -> list[_Row]:
    """Turn rows of a table into Structs; the inverse of `to_arrow`.

    Timestamps become ms. A body without fields has no column and gets its default. Columns that the
    Struct lacks are ignored. Raises msgspec.ValidationError for a row without a required value.
    """
    # Drop columns of nulls first: each costs as much as one with values, and most rows have many.
    nulls = [name for name in _nullable(struct) if _is_null(rows, name)]
    if nulls:
        rows = rows.drop_columns(nulls)
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            millis = rows.column(place).cast(_MILLIS, safe=False).cast(pa.int64())
            rows = rows.set_column(place, field.name, millis)
    return msgspec.convert(rows.to_pylist(), list[struct])  # type: ignore[valid-type]
