"""The data files of a table: what its log says of each, and how a new one is named."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import DeltaTable


# The most that a row group of a new file holds, bytes in Arrow: who reads or writes a file has one
# row group in memory.
ROW_GROUP_BYTES = 16 << 20


class DataFile(Struct, frozen=True):
    """One Parquet file of a table. `modified_ms` is when the newest of its rows was written.

    `stats`: its statistics as JSON, None for the number of its records alone. `tags`: what else its
    writer says of it (`pipeline.delta.layout`).
    """

    path: str
    size: int
    modified_ms: int
    records: int | None
    partition: dict[str, str | None] = {}
    stats: str | None = None
    tags: dict[str, str] = {}


def data_files(handle: DeltaTable) -> list[DataFile]:
    """Return the files of the handle's version, oldest first. Reads the table's log only."""
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
    """Return those of a version's files that were written so long, or less, before `now_ms`.

    If the newest one was written earlier than that, it counts from there.
    """
    since = min(now_ms, max((file.modified_ms for file in files), default=now_ms)) - ms
    return [file for file in files if file.modified_ms >= since]


def new_path(partition: Mapping[str, str | None], codec: str) -> str:
    """Return a path that no file has, below the table's root; `codec` is Parquet's compression."""
    folder = "".join(f"{name}={value}/" for name, value in partition.items())
    return f"{folder}part-{uuid.uuid4()}.{codec}.parquet"


def count_records(files: Sequence[DataFile]) -> int:
    """Return the number of rows of the files; a file without statistics counts as none."""
    return sum(file.records or 0 for file in files)


def count_bytes(files: Sequence[DataFile]) -> int:
    """Return the size of the files together."""
    return sum(file.size for file in files)


def row_group_rows(rows: pa.Table) -> int:
    """Return how many of the rows, on average, make a row group of `ROW_GROUP_BYTES`."""
    groups = max(1, -(-int(rows.nbytes) // ROW_GROUP_BYTES))
    return max(1, -(-int(rows.num_rows) // groups))


def to_table(stream: Any) -> pa.Table:
    """Return the pyarrow table of an object that has Arrow's stream interface, without a copy.

    `pyarrow.table` would first import pandas, to ask whether the object is a DataFrame: 0.7 s and
    52 MB for a process that needs pandas for nothing else.
    """
    return pa.RecordBatchReader.from_stream(stream).read_all()
