"""Row groups of a table's files, sorted by partition, and a cache of them."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from group_coordinator.pipeline.delta import OutsideTable
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.topics.columns import Columns
from group_coordinator.pipeline.topics.topic_errors import BrokenFile

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyarrow.fs import FileSystem

    from group_coordinator.pipeline.topics.columns import Array


_SMALL_ROWS = 10_000


class RowGroup:
    """The rows of a row group, with each partition's rows in the order of the file."""

    def __init__(self, rows: pa.Table, partitions: Array, timestamps: Array) -> None:
        self.rows = rows
        self.timestamps = timestamps
        self._order = np.argsort(partitions, kind="stable").astype(np.int32)
        counts = np.bincount(partitions, minlength=1)
        self._starts = np.concatenate(([0], np.cumsum(counts)))
        self.nbytes = int(rows.nbytes + timestamps.nbytes + self._order.nbytes)

    @property
    def partitions(self) -> list[int]:
        """The partitions that have rows, in ascending order."""
        return [int(number) for number in np.flatnonzero(np.diff(self._starts))]

    def places(self, partition: int) -> Array:
        """Return the indexes of a partition's rows among all rows."""
        if partition + 1 >= len(self._starts):
            return self._order[:0]
        places: Array = self._order[self._starts[partition] : self._starts[partition + 1]]
        return places


class OpenFile:
    """An open Parquet file of a topic's table.

    Raises FileNotFoundError if the file is missing, BrokenFile if it cannot be read.
    """

    def __init__(
        self, files: FileSystem, path: str, partition_values: str | None, columns: Columns
    ) -> None:
        self._columns = columns
        self._partition_values = partition_values
        self._turn = zlib.crc32(path.encode())
        self._path = path
        try:
            self._opened = files.open_input_file(path)
        except OutsideTable as error:
            raise BrokenFile(str(error)) from error
        try:
            self._parquet = pq.ParquetFile(self._opened, coerce_int96_timestamp_unit="us")
        except pa.ArrowException as error:
            self._opened.close()
            raise BrokenFile(f"{path} is no Parquet file: {first_line(error)}") from error
        self.columns = set(self._parquet.schema_arrow.names)
        metadata = self._parquet.metadata
        self.row_groups: list[int] = [
            metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)
        ]

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._parquet.close()
        self._opened.close()

    def read(
        self, number: int, count: int, committed_at: int, names: Sequence[str] | None
    ) -> RowGroup:
        """Read columns of a row group (None: all), for a topic of `count` partitions.

        Raises InvalidTable for a row with a partition number that the topic does not have,
        BrokenFile for a file that cannot be read as Parquet.
        """
        try:
            return self._read(number, count, committed_at, names)
        except pa.ArrowException as error:
            raise BrokenFile(f"{self._path} cannot be read: {first_line(error)}") from error

    def _read(
        self, number: int, count: int, committed_at: int, names: Sequence[str] | None
    ) -> RowGroup:
        if names is not None:
            names = [name for name in names if name in self.columns]
        # Threads take longer for a small row group.
        use_threads = self.row_groups[number] > _SMALL_ROWS
        rows = self._parquet.read_row_group(number, columns=names, use_threads=use_threads)
        rows = plain_types(rows, self._columns.types)
        if not rows.num_columns:
            # A table without columns has no rows either.
            placeholder = pa.nulls(self.row_groups[number])
            rows = pa.table({"": placeholder})
        rows = self._columns.with_partition_values(rows, self._partition_values)
        # Rows without a key are assigned round-robin by their places in the file, from a hash of
        # its path on. So their partition depends on the file alone, not on rows indexed before.
        turn = self._turn + sum(self.row_groups[:number])
        partitions = self._columns.partitions(rows, count, turn)
        return RowGroup(rows, partitions, self._columns.timestamps(rows, committed_at))


def plain_types(rows: pa.Table, declared: Mapping[str, pa.DataType]) -> pa.Table:
    """Cast columns to types that do not depend on the writer of the file.

    delta-rs writes string views, for which Arrow has no `take`; others write dictionaries. Spark's
    INT96 timestamps have no time zone, even if the column of the table has one. 64-bit offsets
    suffice for the strings of any row group.
    """
    fields = [pa.field(f.name, _plain_type(f.type, declared.get(f.name))) for f in rows.schema]
    return rows.cast(pa.schema(fields))


def _plain_type(type_: pa.DataType, declared: pa.DataType | None) -> pa.DataType:
    """Return the plain type of a file's column; `declared` is its type in the table's schema."""
    types = pa.types
    if types.is_dictionary(type_):
        return _plain_type(type_.value_type, declared)
    if types.is_string(type_) or types.is_string_view(type_):
        return pa.large_string()
    if types.is_binary(type_) or types.is_binary_view(type_):
        return pa.large_binary()
    if declared is not None and types.is_timestamp(type_) and types.is_timestamp(declared):
        return pa.timestamp("us", declared.tz)
    if types.is_struct(type_):
        known = {} if declared is None else {field.name: field.type for field in declared}
        return pa.struct([pa.field(f.name, _plain_type(f.type, known.get(f.name))) for f in type_])
    if types.is_list(type_) or types.is_large_list(type_):
        item = None if declared is None else declared.value_type
        return pa.large_list(pa.field("element", _plain_type(type_.value_type, item)))
    if types.is_map(type_):
        key, value = (None, None) if declared is None else (declared.key_type, declared.item_type)
        return pa.map_(_plain_type(type_.key_type, key), _plain_type(type_.item_type, value))
    return type_


class _Held(Protocol):
    @property
    def nbytes(self) -> int: ...


_Rows = TypeVar("_Rows", bound=_Held)


class RowGroupCache(Generic[_Rows]):
    """An LRU cache of row groups, of at most `most_bytes`.

    The last used row group is kept even if it is larger.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._held: OrderedDict[Hashable, _Rows] = OrderedDict()

    def get(self, key: Hashable) -> _Rows | None:
        """Return a cached row group, None if it is not cached."""
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
        return found

    def put(self, key: Hashable, group: _Rows) -> None:
        """Cache a row group, and drop the least recently used ones that exceed the limit."""
        self._held[key] = group
        self._bytes += group.nbytes
        while self._bytes > self._most_bytes and len(self._held) > 1:
            _, gone = self._held.popitem(last=False)
            self._bytes -= gone.nbytes
