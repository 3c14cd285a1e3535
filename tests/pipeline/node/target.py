"""A table to write a bootstrap to, and strings as no writer should write them."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable

from group_coordinator.pipeline.delta.table_files import Engine, TableFiles
from group_coordinator.pipeline.stream.packed_events import PACKED_SCHEMA


def new_target(engine: Engine) -> TableFiles:
    """An empty table that goes with the engine."""
    uri = str(engine.scratch / "bootstrap")
    return TableFiles(DeltaTable.create(uri, PACKED_SCHEMA), engine.scratch)


def with_column(rows: pa.Table, name: str, value: bytes) -> pa.Table:
    """The rows with these bytes for a column of strings, UTF-8 or not."""
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, name, pa.array([value] * len(rows)).view(pa.string()))
