"""The states of a streaming checkpoint, read from its changelogs without Spark.

Spark's RocksDB state store writes a changelog for each batch: keys and values with their lengths,
compressed as LZ4 blocks. Keys and values are rows of Spark's UnsafeRow after a byte of version.
Sources: Apache Spark, StateStoreChangelogWriterV1, UnsafeRow; lz4-java, LZ4BlockOutputStream.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa

_MAGIC = b"LZ4Block"
_BLOCK = struct.Struct("<Biii")
_LENGTH = struct.Struct(">i")
_RAW = 0x10


def read_states(stream: Path) -> dict[str, bytes]:
    """Return the state of each group after the last batch; all changelogs must exist."""
    folder = stream / "state" / "0" / "0"
    versions = sorted(int(path.stem) for path in folder.glob("*.changelog"))
    assert versions == list(range(1, len(versions) + 1)), "changelogs were cleaned up"
    found: dict[bytes, bytes] = {}
    for version in versions:
        _replay(_unblocked((folder / f"{version}.changelog").read_bytes()), found)
    # The value's row has the group's state, a row with one binary, and its timer.
    return {
        _field(key[1:], 0, fields=1).decode(): _field(_field(value[1:], 0, fields=2), 0, fields=1)
        for key, value in found.items()
    }


def last_batch(stream: Path) -> int:
    """Return the last batch that the streaming checkpoint has planned."""
    return max(int(path.name) for path in (stream / "offsets").iterdir() if path.name.isdigit())


def _replay(log: bytes, found: dict[bytes, bytes]) -> None:
    at = 0
    while True:
        key, at = _sized(log, at)
        if key is None:
            return
        value, at = _sized(log, at)
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value


def _sized(log: bytes, at: int) -> tuple[bytes | None, int]:
    """Return bytes after their length; None for the length -1."""
    (size,) = _LENGTH.unpack_from(log, at)
    at += _LENGTH.size
    return (None, at) if size < 0 else (log[at : at + size], at + size)


def _unblocked(content: bytes) -> bytes:
    codec = pa.Codec("lz4_raw")
    found, at = b"", 0
    while at < len(content):
        assert content.startswith(_MAGIC, at)
        token, size, unpacked, _ = _BLOCK.unpack_from(content, at + len(_MAGIC))
        at += len(_MAGIC) + _BLOCK.size
        block = content[at : at + size]
        at += size
        if unpacked:
            is_raw = token & 0xF0 == _RAW
            found += block if is_raw else codec.decompress(block, unpacked).to_pybytes()
    return found


def _field(row: bytes, index: int, fields: int) -> bytes:
    """Return a field of variable length: each has its offset and size, after the null bits."""
    (place,) = struct.unpack_from("<q", row, 8 * ((fields + 63) // 64) + 8 * index)
    return row[place >> 32 :][: place & 0xFFFFFFFF]
