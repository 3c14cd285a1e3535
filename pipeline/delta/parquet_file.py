"""Reading Parquet files, and telling a damaged file from an unavailable one.

pyarrow raises the same errors for both. A table's files never change: if the bytes are not Parquet,
or do not decode, the file is damaged for ever, and its rows may be replaced. A store that fails may
answer later, and skipping rows then would lose them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from group_coordinator.pipeline.delta.commit import NotWhole
from group_coordinator.pipeline.delta.data_file import data_files, dataset_of
from group_coordinator.pipeline.delta.page_headers import why_understated
from group_coordinator.pipeline.delta.store_files import is_in_store, open_files, side_by_side
from group_coordinator.pipeline.delta.table import open_delta

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

# pyarrow's errors for a damaged file, and for a store that fails.
UNREAD = (pa.ArrowException, OSError)

_MAGIC = b"PAR1"
# The length of the footer, and the magic.
_END_BYTES = 8
# The number of rows that a trial decodes at once, because a text may repeat in each of them.
_TRIED_ROWS = 1_024


class Substitute(Protocol):
    """A source of the rows that replace a certainly damaged file or row group."""

    def for_file(self, path: str, why: str) -> pa.Table:
        """Return the rows that replace a whole damaged file, which counts as one row group."""
        ...

    def for_row_group(
        self, files: FileSystem, path: str, row_group: int, first: int, why: str
    ) -> pa.Table:
        """Return as many rows as an undecodable row group has from row `first` on."""
        ...


@contextmanager
def read_whole(path: str) -> Iterator[None]:
    """Convert pyarrow's errors of parsing a file in the block to NotWhole."""
    try:
        yield
    except pa.ArrowException as error:
        raise NotWhole(f"{path} cannot be read: {error}") from error


def read_rows(
    handle: DeltaTable, columns: Sequence[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """Return the rows of the handle's version. Raises OSError."""
    with read_whole(handle.table_uri):
        return dataset_of(handle).to_table(columns=columns, filter=where)


def newest_first(uri: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of the table's newest version, one row group at a time.

    The newest file and the last row group come first. Partition columns are not allowed; a column
    that a file lacks is left out. Raises deltalake's TableNotFoundError, and FileNotFoundError for
    a file that was deleted meanwhile.
    """
    files = open_files(uri)
    for file in reversed(data_files(open_delta(uri))):
        with files.open_input_file(file.path) as opened:
            parquet = pq.ParquetFile(opened)
            for group in reversed(range(parquet.num_row_groups)):
                yield parquet.read_row_group(group, columns=list(columns))


def read_files(files: FileSystem, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return the rows of files, in their order, with the columns of `schema`; null where missing.

    `files` has the table at its root; `paths` are as in its log. In a store small files are read
    concurrently, one request each. Raises FileNotFoundError for a missing file. Raises OSError for
    one that cannot be read, for example because a column has another type.
    """
    read = partial(_read_columns, files, schema)
    tables = side_by_side(read, paths) if is_in_store(files) else map(read, paths)
    # pyarrow imports pandas for an `empty_table`.
    return pa.concat_tables([pa.Table.from_batches([], schema), *tables])


def _read_columns(files: FileSystem, schema: pa.Schema, path: str) -> pa.Table:
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


def open_parquet(files: FileSystem, path: str, file: pa.NativeFile) -> pq.ParquetFile | str:
    """Open a file as Parquet, or return why it is certainly damaged or understates its pages.

    Readers bound their memory by the footer (`pipeline.delta.page_headers`). Raises pyarrow's error
    if the file may be Parquet.
    """
    try:
        parquet = pq.ParquetFile(file)
    except UNREAD:
        why = why_no_parquet(files, path)
        if why is None:
            raise
        return why
    return why_understated(file, parquet.metadata) or parquet


def why_no_parquet(files: FileSystem, path: str) -> str | None:
    """Return why a file is certainly not Parquet, None if it may be.

    Raises OSError if its bytes cannot be read.
    """
    with files.open_input_file(path) as file:
        size = file.size()
        if size < len(_MAGIC) + _END_BYTES:
            return f"it has {size} bytes"
        end = _read(file, size - _END_BYTES, _END_BYTES)
        if end[-len(_MAGIC) :] != _MAGIC:
            return "it does not end with PAR1"
        length = int.from_bytes(end[: -len(_MAGIC)], "little")
        if length > size - len(_MAGIC) - _END_BYTES:
            return f"it has {size} bytes, and a footer of {length}"
        footer = _read(file, size - length - _END_BYTES, length + _END_BYTES)
    try:
        pq.read_metadata(pa.BufferReader(_MAGIC + footer))
    except (pa.ArrowException, OSError) as error:
        return f"its footer cannot be read: {error}"
    return None


def why_undecodable(
    files: FileSystem, path: str, row_group: int, columns: Sequence[str]
) -> str | None:
    """Return why a row group's columns certainly cannot be decoded, None if they may be.

    It is certain only if decoding fails although all bytes that pyarrow requested were read.
    `columns` that the file lacks are ignored.
    """
    with files.open_input_file(path) as opened:
        watched = _Watched(opened)
        try:
            footer = pq.read_metadata(opened)
            texts = [
                column.path_in_schema
                for index in range(footer.num_columns)
                if (column := footer.row_group(row_group).column(index)).physical_type
                == "BYTE_ARRAY"
            ]
            source = pa.PythonFile(watched, mode="r")
            parquet = pq.ParquetFile(source, read_dictionary=texts, metadata=footer)
            for _ in parquet.iter_batches(_TRIED_ROWS, [row_group], list(columns)):
                pass
        except pa.ArrowMemoryError:
            return None
        except UNREAD as error:
            return None if watched.has_failed else str(error)
    return None


def why_damaged(files: FileSystem, path: str) -> str | None:
    """Return why a file is certainly damaged, None if it may be whole.

    Raises OSError if its bytes cannot be read.
    """
    why = why_no_parquet(files, path)
    if why is not None:
        return why
    with files.open_input_file(path) as file:
        footer = pq.read_metadata(file)
        why = why_understated(file, footer)
    if why is not None:
        return why
    names = footer.schema.to_arrow_schema().names
    for index in range(footer.num_row_groups):
        why = why_undecodable(files, path, index, names)
        if why is not None:
            return f"row group {index} cannot be decoded: {why}"
    return None


class _Watched(io.RawIOBase):
    def __init__(self, file: pa.NativeFile) -> None:
        super().__init__()
        self.has_failed = False
        self._file = file
        self._size = file.size()

    def read(self, size: int = -1) -> bytes:
        at = self._file.tell()
        wanted = self._size - at if size < 0 else min(size, self._size - at)
        try:
            found = bytes(self._file.read(wanted))
        except OSError:
            self.has_failed = True
            raise
        if len(found) != wanted:
            self.has_failed = True
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _read(file: pa.NativeFile, start: int, length: int) -> bytes:
    found = bytes(file.read_at(length, start))
    if len(found) != length:
        raise OSError(f"{len(found)} of {length} bytes were read")
    return found
