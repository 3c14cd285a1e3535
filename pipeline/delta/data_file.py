"""The data files of a table: their entries in its log, and writing rows as a new file.

An add action may have tags, which readers may ignore. Tags that describe each row group save a
reader from opening files, which takes at least 0.2 ms of CPU each. Source: Delta's PROTOCOL.md,
"Add File".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, structs

from group_coordinator.pipeline.delta.store_files import open_files

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow import dataset as ds

    from group_coordinator.pipeline.delta.storage import Store

# The age (s) up to which a written data file may be committed. VACUUM spares younger files: its
# retention is at least an hour. If a writer was suspended for longer, VACUUM may have deleted its
# file, and a table with a missing file cannot be read.
COMMITTABLE_S = 1_800.0

# The largest row group of a new file, bytes in Arrow. Readers and writers hold one in memory.
ROW_GROUP_BYTES = 16 << 20


class DataFile(Struct, frozen=True):
    """One Parquet file of a table. `modified_ms` is the time when its newest row was written.

    `stats` are its statistics as JSON; None if there is only the number of its records. The writer
    of the file chooses its `tags` (`Layout`).
    """

    path: str
    size: int
    modified_ms: int
    records: int | None
    partition: dict[str, str | None] = {}
    stats: str | None = None
    tags: dict[str, str] = {}


def dataset_of(handle: DeltaTable) -> ds.Dataset:
    """Return the rows of the handle's version as a pyarrow dataset.

    It reads files through `open_files`. With delta-rs's file system, which is written in Python, a
    process that ends just after a read may abort.
    """
    return handle.to_pyarrow_dataset(filesystem=open_files(handle.table_uri))


def data_files(handle: DeltaTable) -> list[DataFile]:
    """Return the files of the handle's version, oldest first. Reads only the table's log."""
    actions = to_table(handle.get_add_actions())
    columns = actions.select(["path", "size_bytes", "num_records"]).to_pydict()
    modified = actions.column("modification_time").cast(pa.int64()).to_pylist()
    if "partition" in actions.column_names:
        partitions = actions.column("partition").to_pylist()
    else:
        partitions = [{}] * actions.num_rows
    found = [
        DataFile(
            path,
            size,
            modified_ms,
            records,
            {name: None if value is None else str(value) for name, value in partition.items()},
        )
        for path, size, records, modified_ms, partition in zip(
            *(columns[name] for name in ("path", "size_bytes", "num_records")),
            modified,
            partitions,
            strict=True,
        )
    ]
    return sorted(found, key=lambda file: (file.modified_ms, file.path))


def modified_within(files: Sequence[DataFile], ms: int, now_ms: int) -> list[DataFile]:
    """Return the files that were written at most `ms` before `now_ms`.

    If the newest file is older than `now_ms`, the time counts back from that file.
    """
    since = min(now_ms, max((file.modified_ms for file in files), default=now_ms)) - ms
    return [file for file in files if file.modified_ms >= since]


class Layout(NamedTuple):
    """A file's rows in order, its tags, and the number of rows of each row group.

    `row_groups` None: row groups of about `ROW_GROUP_BYTES`.
    """

    rows: pa.Table
    tags: Mapping[str, str] = {}
    row_groups: Sequence[int] | None = None


# Converts rows to a file's layout; deterministic.
LayOut = Callable[[pa.Table], Layout]


def write_rows(
    store: Store,
    layout: Layout,
    partition: Mapping[str, str | None],
    flushed: bool = False,
    **options: Any,
) -> DataFile:
    """Write rows, all of one partition, as a file that no commit names yet.

    `store` has the table at its root; `options` are passed to pyarrow's ParquetWriter. Partition
    columns are not written to the file. Raises OSError.
    """
    rows = layout.rows
    rows = rows.drop_columns([name for name in partition if name in rows.column_names])
    path = new_path(partition, "snappy")
    buffer = pa.BufferOutputStream()
    write_parquet(buffer, layout._replace(rows=rows), **options)
    content = buffer.getvalue()
    modified_ms = store.write(path, content, flushed)
    tags = dict(layout.tags)
    return DataFile(path, content.size, modified_ms, rows.num_rows, dict(partition), tags=tags)


def copy_file(store: Store, file: DataFile) -> DataFile:
    """Copy a file that no commit names, so that VACUUM does not delete it soon.

    Raises FileNotFoundError if it is gone, and OSError.
    """
    content = store.read(file.path)
    if content is None:
        raise FileNotFoundError(f"{store.uri}/{file.path} was deleted before it was committed")
    path = new_path(file.partition, "snappy")
    return structs.replace(file, path=path, modified_ms=store.write(path, content))


def write_parquet(target: pa.NativeFile, layout: Layout, **options: Any) -> None:
    """Write the rows as Parquet, with the layout's row groups."""
    rows = layout.rows
    with pq.ParquetWriter(target, rows.schema, store_schema=False, **options) as writer:
        if layout.row_groups is None:
            writer.write_table(rows, row_group_size=_row_group_rows(rows))
        first = 0
        for count in layout.row_groups or ():
            writer.write_table(rows.slice(first, count), row_group_size=count)
            first += count


def new_path(partition: Mapping[str, str | None], codec: str) -> str:
    """Return a new unique path below the table's root; `codec` is Parquet's compression."""
    folder = "".join(f"{name}={value}/" for name, value in partition.items())
    return f"{folder}part-{uuid.uuid4()}.{codec}.parquet"


def count_records(files: Sequence[DataFile]) -> int:
    """Return the number of rows of the files; files without statistics count as 0."""
    return sum(file.records or 0 for file in files)


def count_bytes(files: Sequence[DataFile]) -> int:
    """Return the total size of the files, bytes."""
    return sum(file.size for file in files)


def _row_group_rows(rows: pa.Table) -> int:
    groups = max(1, -(-int(rows.nbytes) // ROW_GROUP_BYTES))
    return max(1, -(-int(rows.num_rows) // groups))


def to_table(stream: Any) -> pa.Table:
    """Return the pyarrow table of an object that has Arrow's stream interface, without a copy.

    `pyarrow.table` would import pandas for a type check, which costs 0.7 s and 52 MB.
    """
    return pa.RecordBatchReader.from_stream(stream).read_all()
