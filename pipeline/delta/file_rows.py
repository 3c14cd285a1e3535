"""The rows of a plain table's files, on any store."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from group_coordinator.pipeline.delta.data_files import data_files
from group_coordinator.pipeline.delta.parquet_file import read_whole
from group_coordinator.pipeline.delta.side_by_side import side_by_side
from group_coordinator.pipeline.delta.store_files import is_in_store, open_files
from group_coordinator.pipeline.delta.table import open_delta

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyarrow.fs import FileSystem


def newest_first(uri: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of each file of the table's newest version, the newest file first.

    None of the columns may be a partition column; a column that a file lacks is left out. Raises
    deltalake's TableNotFoundError, and FileNotFoundError for a file that was deleted meanwhile.
    """
    files = open_files(uri)
    for file in reversed(data_files(open_delta(uri))):
        with files.open_input_file(file.path) as opened:
            parquet = pq.ParquetFile(opened)
            for group in reversed(range(parquet.num_row_groups)):
                yield parquet.read_row_group(group, columns=list(columns))


def read_files(files: FileSystem, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return the rows of files in their order, with the columns of `schema`; null where one lacks.

    `files` has the table at its root, `paths` are as its log names them. In a store small files are
    read side by side, each by one request. Raises FileNotFoundError for a file that is gone, and
    OSError for one that cannot be read, as with a column of another type.
    """
    read = partial(_read, files, schema)
    tables = side_by_side(read, paths) if is_in_store(files) else map(read, paths)
    # pyarrow imports pandas for an `empty_table`.
    return pa.concat_tables([pa.Table.from_batches([], schema), *tables])


def _read(files: FileSystem, schema: pa.Schema, path: str) -> pa.Table:
    with (
        read_whole(path),
        files.open_input_file(unquote(path)) as opened,
        pq.ParquetFile(opened, coerce_int96_timestamp_unit="us") as parquet,
    ):
        known = [name for name in schema.names if name in parquet.schema_arrow.names]
        rows = parquet.read(known)
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in known
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
