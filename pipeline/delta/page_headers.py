"""A check that the footer of a Parquet file does not understate its pages.

Readers bound their memory by the footer, but pyarrow allocates by the page headers. If the footer
understates the pages, a few bytes can decode to gigabytes. Source: parquet-format, `PageHeader` of
parquet.thrift; Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

# A file up to this size (bytes) is read whole. Of a larger file only the beginning of each page is
# read.
_AT_ONCE_BYTES = 1 << 20
# The first read for a header, and the largest header that pyarrow reads, bytes.
_HEADER_BYTES, _MOST_HEADER_BYTES = 1 << 12, 16 << 20
# The deepest nesting of structs that Thrift reads.
_DEEPEST = 64
_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE, _NUM_VALUES = 2, 3, 1
# The structs of a data page, of version 1 and 2, among a header's fields.
_DATA_PAGES = (5, 8)


def why_understated(file: pa.NativeFile, footer: pq.FileMetaData) -> str | None:
    """Return how a footer understates the pages of its file, None if it does not.

    A column ends at a header that cannot be read, because pyarrow stops there too. Raises OSError.
    """
    source = _Source(file)
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            size = values = 0
            said_size, said_values = column.total_uncompressed_size, column.num_values
            for page_size, page_values in _pages(source, column, said_values):
                size += page_size
                values += page_values
                if size > said_size or values > said_values:
                    return (
                        f"by its footer column {column.path_in_schema!r} of row group {number} has "
                        f"{said_size} bytes and {said_values} values, but its pages have at least "
                        f"{size} and {values}"
                    )
    return None


def _pages(source: _Source, column: pq.ColumnChunkMetaData, most: int) -> Iterator[tuple[int, int]]:
    """Yield the decoded size (bytes) and number of values of each page that pyarrow would read."""
    at = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < at:
        at = column.dictionary_page_offset
    end = at + column.total_compressed_size
    values = 0
    while at < end and values < most:
        try:
            length, size, compressed, count = source.header(at, end)
        except (ValueError, RecursionError):
            return
        yield size, count
        values += count
        at += length + compressed


class _Source:
    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self._size = file.size()
        self._whole = file.read_at(self._size, 0) if self._size <= _AT_ONCE_BYTES else None

    def header(self, at: int, end: int) -> tuple[int, int, int, int]:
        """Return a header's length, the page's decoded and stored sizes, and its number of values.

        Raises ValueError if there is no valid header.
        """
        if at < 0:
            raise ValueError(f"a page at {at}")
        if self._whole is not None:
            return _parse(self._whole, at)
        end = min(end, self._size)
        size = _HEADER_BYTES
        while True:
            content = self._file.read_at(min(size, end - at), at)
            try:
                return _parse(content, 0)
            except ValueError:
                if size >= min(end - at, _MOST_HEADER_BYTES):
                    raise
                size *= 16


def _parse(content: bytes, begin: int) -> tuple[int, int, int, int]:
    fields: dict[tuple[int, ...], int] = {}
    try:
        at = _struct(content, begin, (), fields)
    except IndexError as error:
        raise ValueError("the header is cut off") from error
    size, compressed = fields.get((_UNCOMPRESSED_SIZE,), 0), fields.get((_COMPRESSED_SIZE,), 0)
    values = sum(fields.get((page, _NUM_VALUES), 0) for page in _DATA_PAGES)
    if size < 0 or compressed < 0 or values < 0:
        raise ValueError("a size below zero")
    return at - begin, size, compressed, values


def _varint(content: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = content[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _struct(
    content: bytes, at: int, path: tuple[int, ...], fields: dict[tuple[int, ...], int]
) -> int:
    """Add a Thrift struct's integers to `fields`, by their paths of field ids; return its end."""
    if len(path) > _DEEPEST:
        raise ValueError("too many structs in structs")
    field = 0
    while True:
        head = content[at]
        at += 1
        if head == 0:
            return at
        kind = head & 0x0F
        if head >> 4:
            field += head >> 4
        else:
            number, at = _varint(content, at)
            field = number >> 1 ^ -(number & 1)
        if kind in (4, 5, 6):
            number, at = _varint(content, at)
            fields[*path, field] = number >> 1 ^ -(number & 1)
        elif kind == 12:
            at = _struct(content, at, (*path, field), fields)
        elif kind not in (1, 2):
            at = _skip(content, at, kind, len(path))


# Sizes in bytes by Thrift type: booleans (1, 2) as list items, a byte (3), a double (7).
_FIXED = {1: 1, 2: 1, 3: 1, 7: 8}


def _skip(content: bytes, at: int, kind: int, depth: int) -> int:
    """Return the end of a value. Raises ValueError for a list with more items than bytes."""
    if depth > _DEEPEST:
        raise ValueError("too many structs in structs")
    if kind in _FIXED:
        return at + _FIXED[kind]
    if kind in (4, 5, 6):
        return _varint(content, at)[1]
    if kind == 8:
        length, at = _varint(content, at)
        return at + length
    if kind in (9, 10):
        head = content[at]
        at += 1
        count = head >> 4
        if count == 15:
            count, at = _varint(content, at)
        for _ in range(count):
            at = _skip(content, at, head & 0x0F, depth + 1)
            if at > len(content):
                raise ValueError("a list is cut off")
        return at
    if kind == 12:
        return _struct(content, at, (0,) * (depth + 1), {})
    raise ValueError(f"no type {kind} of Thrift")
