"""Damage of the newest file of the requests, as by a disk or another writer."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq


def spoil(root: str, content: bytes = b"no Parquet") -> str:
    """Replace the content of the file; return its name."""
    path = newest(root)
    path.write_bytes(content)
    return path.name


def damage(root: str, column: str) -> str:
    """Overwrite the pages of a column in the first row group; return the file's name."""
    path = newest(root)
    content = bytearray(path.read_bytes())
    group = pq.read_metadata(path).row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    (chunk,) = (each for each in chunks if each.path_in_schema == column)
    first = chunk.dictionary_page_offset or chunk.data_page_offset
    size = chunk.total_compressed_size
    content[first : first + size] = b"\xff" * size
    path.write_bytes(content)
    return path.name


def newest(root: str) -> Path:
    """Return the newest file of the requests."""
    files = Path(root, "requests").glob("*.parquet")
    return max(files, key=lambda each: each.stat().st_mtime_ns)


def understate(path: Path, column: str, field: str = "total_uncompressed_size") -> None:
    """Change a footer to say one byte, or one value, for a column of the last row group."""
    content = path.read_bytes()
    footer = pq.read_metadata(path)
    group = footer.row_group(footer.num_row_groups - 1)
    chunks = [group.column(index) for index in range(group.num_columns)]
    (chunk,) = (each for each in chunks if each.path_in_schema == column)
    # The numbers follow each other in the column's metadata: values, decoded and encoded size.
    said = {
        name: _varint(getattr(chunk, name))
        for name in ("num_values", "total_uncompressed_size", "total_compressed_size")
    }
    before = b"\x16".join(said.values())
    said[field] = _varint(1, len(said[field]))
    at = content.index(before, content.rindex(column.rsplit(".", maxsplit=1)[-1].encode(), 0, -8))
    after = b"\x16".join(said.values())
    path.write_bytes(content[:at] + after + content[at + len(before) :])


def _varint(number: int, length: int = 0) -> bytes:
    """Return a number in this many bytes of Thrift's compact protocol."""
    number *= 2
    found = []
    while number or len(found) < length or not found:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found[-1] &= 0x7F
    return bytes(found)
