"""A table's rows by delta-rs and Arrow: from any store, of any release, or as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.monitor.as_of import open_as_of
from group_coordinator.pipeline.tables.columns import dataset
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import ON_DEMAND, TABLES

if TYPE_CHECKING:
    from datetime import datetime

_TABLES = {table.name: table for table in (*TABLES.values(), *ON_DEMAND)}


def table_rows(root: str, name: str, as_of: datetime | int | None) -> Any:
    """Return the rows of an existing table for DuckDB; none if it did not exist yet then.

    Raises NotKept, and what `pipeline.tables.columns.check_columns` raises.
    """
    table = _TABLES[name]
    uri = table_uri(root, table)
    handle = open_delta(uri) if as_of is None else open_as_of(uri, as_of)
    return table.schema.empty_table() if handle is None else dataset(handle, table)
