"""Tables as an earlier release would have made them: without some of the columns of this one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable

from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import Table


def without(fields: Sequence[pa.Field], *names: str) -> list[pa.Field]:
    """The fields without some, which are named by dots within structs and lists of structs."""
    kept = []
    for field in fields:
        inner = [name.partition(".")[2] for name in names if name.startswith(f"{field.name}.")]
        if field.name not in names:
            kept.append(field.with_type(_without(field.type, *inner)) if inner else field)
    return kept


def _without(type_: pa.DataType, *names: str) -> pa.DataType:
    if pa.types.is_list(type_):
        item = type_.value_field
        return pa.list_(item.with_type(_without(item.type, *names)))
    return pa.struct(without(list(type_), *names))


def earlier(table: Table, *names: str) -> pa.Schema:
    """The table's columns without some."""
    return pa.schema(without(list(table.schema), *names))


def create(root: str, table: Table, schema: pa.Schema) -> DeltaTable:
    """Make the table with these columns."""
    partition_by = list(table.partition_by)
    return DeltaTable.create(table_uri(root, table), schema, partition_by=partition_by)


def in_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows as a writer has them who knows these columns only."""
    return pa.Table.from_pylist(rows.to_pylist(), schema=schema)
