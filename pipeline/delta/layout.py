"""How the rows of an append become a file: their order, their row groups, and the file's tags.

Readers that want some of a table's rows each are served by an order of the rows that suits them,
and by tags that tell which row group has what: opening a Parquet file takes 0.2 ms of CPU and more,
a tag comes with the commit. An add action may have tags, names and texts that a reader may ignore.
Source: Delta's PROTOCOL.md, "Add File".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from group_coordinator.pipeline.delta.data_files import row_group_rows

if TYPE_CHECKING:
    from pathlib import Path


class Layout(NamedTuple):
    """A file's rows in their order, its tags, and how many rows each row group has.

    `row_groups` None: as many as make a row group of `ROW_GROUP_BYTES`.
    """

    rows: pa.Table
    tags: Mapping[str, str] = {}
    row_groups: Sequence[int] | None = None


# Says how rows become a file; the same for the same rows.
LayOut = Callable[[pa.Table], Layout]


def write_parquet(target: Path | pa.NativeFile, layout: Layout, leave_out: Sequence[str]) -> None:
    """Write the rows without the columns `leave_out`. Raises OSError."""
    rows = layout.rows.drop_columns(list(leave_out))
    if layout.row_groups is None:
        size = row_group_rows(rows)
        pq.write_table(rows, target, store_schema=False, row_group_size=size)
        return
    with pq.ParquetWriter(target, rows.schema, store_schema=False) as writer:
        first = 0
        for count in layout.row_groups:
            writer.write_table(rows.slice(first, count), row_group_size=count)
            first += count
