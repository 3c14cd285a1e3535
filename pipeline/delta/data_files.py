"""The files that a version of a table has, as its log tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable


class DataFile(Struct, frozen=True):
    """One Parquet file of a table. `modified_ms` is when the newest of its rows was written."""

    path: str
    size: int
    modified_ms: int
    records: int | None
    partition: dict[str, str | None] = {}


def data_files(handle: DeltaTable) -> list[DataFile]:
    """Return the files of the handle's version, oldest first. Reads the table's log only."""
    actions = pa.table(handle.get_add_actions())
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


def count_records(files: Sequence[DataFile]) -> int:
    """Return the rows of the files; a file whose commit does not say counts as none."""
    return sum(file.records or 0 for file in files)


def count_bytes(files: Sequence[DataFile]) -> int:
    """Return the size of the files."""
    return sum(file.size for file in files)
