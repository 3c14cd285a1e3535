"""Damaging the newest file of the requests, as a disk or a foreign writer may."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq


def spoil(root: str, content: bytes = b"no Parquet") -> str:
    """Give the file another content; return its name."""
    path = _newest(root)
    path.write_bytes(content)
    return path.name


def damage(root: str, column: str) -> str:
    """Overwrite the pages of a column in the first row group; return the file's name."""
    path = _newest(root)
    content = bytearray(path.read_bytes())
    group = pq.read_metadata(path).row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    (chunk,) = (each for each in chunks if each.path_in_schema == column)
    first = chunk.dictionary_page_offset or chunk.data_page_offset
    size = chunk.total_compressed_size
    content[first : first + size] = b"\xff" * size
    path.write_bytes(content)
    return path.name


def _newest(root: str) -> Path:
    files = Path(root, "requests").glob("*.parquet")
    return max(files, key=lambda each: each.stat().st_mtime_ns)
