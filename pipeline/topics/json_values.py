"""Encoding of rows as JSON objects by DuckDB, which is faster than msgspec over Python objects.

An object has the columns of the row's file in their order, then the table's partition columns. So a
column that is added to the table later does not change older records. NaN and infinities are null.
Times are ISO 8601 with microseconds, with `Z` if they have a time zone. Binary is base64. Keys of a
map are strings. Bytes of a string that are not UTF-8 are replaced by U+FFFD.
"""

from __future__ import annotations

import functools
from typing import Any

import duckdb
import pyarrow as pa

from group_coordinator.pipeline.errors import Failure, first_line

_TIME = "%Y-%m-%dT%H:%M:%S.%f"


@functools.cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """Return the process's DuckDB connection: starting DuckDB is slow, a cursor is fast."""
    return duckdb.connect(":memory:", config={"threads": 1, "autoinstall_known_extensions": False})


class JsonRows:
    """An encoder of rows; for one thread at a time."""

    def __init__(self) -> None:
        self._queries: dict[pa.Schema, str] = {}

    @functools.cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        """A cursor with its own registered tables, created at the first `encode`.

        Objects that never encode must not have one. For example, py4j holds a listener until its
        Spark job ends, and the cursor with it; DuckDB would then print 40 lines of reported leaks.
        """
        return _duckdb().cursor()

    def encode(self, rows: pa.Table) -> list[bytes]:
        """Return each row, of a `RowGroup`, as a JSON object in UTF-8.

        Raises Failure for a value that cannot be encoded, such as invalid UTF-8 inside a struct.
        """
        rows = _in_utf8(rows)
        schema = rows.schema.remove_metadata()
        query = self._queries.get(schema)
        if query is None:
            query = self._queries[schema] = _query(schema)
        try:
            self._connection.register("rows_to_encode", rows)
            found: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        except duckdb.Error as error:
            raise Failure(f"a row cannot be written as JSON: {first_line(error)}") from error
        finally:
            self._connection.unregister("rows_to_encode")
        return [value for (value,) in found]


def _in_utf8(rows: pa.Table) -> pa.Table:
    """Replace invalid UTF-8 in strings, because DuckDB would read such a string as empty.

    Raises Failure if invalid UTF-8 remains in a nested value.
    """
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        for place, field in enumerate(rows.schema):
            if pa.types.is_large_string(field.type):
                texts = [
                    None if value is None else value.decode("utf-8", "replace")
                    for value in rows.column(place).cast(pa.large_binary()).to_pylist()
                ]
                rows = rows.set_column(place, field, pa.array(texts, field.type))
        try:
            rows.validate(full=True)
        except pa.ArrowInvalid as error:
            raise Failure(f"a row cannot be written as JSON: {first_line(error)}") from error
    return rows


def _query(schema: pa.Schema) -> str:
    fields = ", ".join(
        f"{_name(field.name)} := {_expression(field.type, _name(field.name))}" for field in schema
    )
    return f"SELECT encode(to_json(struct_pack({fields}))::VARCHAR) FROM rows_to_encode"


def _expression(type_: pa.DataType, value: str, depth: int = 0) -> str:
    types = pa.types
    if types.is_floating(type_):
        return f"CASE WHEN isfinite({value}) THEN {value} END"
    if types.is_large_binary(type_):
        return f"base64({value})"
    if types.is_timestamp(type_):
        zone = "Z" if type_.tz else ""
        return f"strftime(make_timestamp(epoch_us({value})), '{_TIME}{zone}')"
    item = f"x{depth}"
    if types.is_struct(type_):
        fields = ", ".join(
            f"{_name(f.name)} := {_expression(f.type, f'{value}.{_name(f.name)}', depth)}"
            for f in type_
        )
        return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({fields}) END"
    if types.is_large_list(type_):
        inner = _expression(type_.value_type, item, depth + 1)
        return f"list_transform({value}, lambda {item}: {inner})" if inner != item else value
    if types.is_map(type_):
        inner = _expression(type_.item_type, f"{item}.value", depth + 1)
        entry = f"struct_pack(key := {item}.key::VARCHAR, value := {inner})"
        return f"map_from_entries(list_transform(map_entries({value}), lambda {item}: {entry}))"
    return value


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
