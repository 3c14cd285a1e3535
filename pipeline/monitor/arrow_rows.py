"""Rows of a table read with delta-rs and Arrow.

This reader supports every store, tables of every release, and earlier versions of a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.delta import open_delta
from group_coordinator.pipeline.monitor.as_of import open_as_of
from group_coordinator.pipeline.tables.columns import dataset
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import ON_DEMAND, TABLES

if TYPE_CHECKING:
    from datetime import datetime

_TABLES = {table.name: table for table in (*TABLES.values(), *ON_DEMAND)}


def table_rows(root: str, name: str, as_of: datetime | int | None) -> Any:
    """Return the rows of an existing table for DuckDB; no rows if it did not exist at `as_of`.

    Raises NotKept, and the errors of `pipeline.tables.columns.check_columns`.
    """
    table = _TABLES[name]
    uri = table_uri(root, table)
    handle = open_delta(uri) if as_of is None else open_as_of(uri, as_of)
    return table.schema.empty_table() if handle is None else dataset(handle, table)
