"""Telling a file that is no Parquet file from one that could not be read just now.

pyarrow raises the same errors for both. A file of a table never changes: what is certainly no
Parquet file will never be one. But a store that fails today may answer tomorrow, and rows that were
given up for its failure would be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_MAGIC = b"PAR1"
# The length of the footer, and the magic.
_END_BYTES = 8


def why_no_parquet(files: FileSystem, path: str) -> str | None:
    """Return why a file is certainly no Parquet file, None if it may be one.

    Only bytes that were read decide. Raises OSError if they cannot be read.
    """
    with files.open_input_file(path) as file:
        size = file.size()
        if size < len(_MAGIC) + _END_BYTES:
            return f"it has {size} bytes"
        end = _read(file, size - _END_BYTES, _END_BYTES)
        if end[-len(_MAGIC) :] != _MAGIC:
            return "it does not end as a Parquet file does"
        length = int.from_bytes(end[: -len(_MAGIC)], "little")
        if length > size - len(_MAGIC) - _END_BYTES:
            return f"it has {size} bytes, and a footer of {length}"
        footer = _read(file, size - length - _END_BYTES, length + _END_BYTES)
    try:
        pq.read_metadata(pa.BufferReader(_MAGIC + footer))
    except (pa.ArrowException, OSError) as error:
        return f"its footer cannot be read: {error}"
    return None


def _read(file: pa.NativeFile, start: int, length: int) -> bytes:
    found = bytes(file.read_at(length, start))
    if len(found) != length:
        raise OSError(f"{len(found)} of {length} bytes were read")
    return found
