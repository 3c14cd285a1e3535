"""Decompression of the records in a batch, within a budget of bytes.

Source: Apache Kafka, CompressionType, and the framing of snappy-java. Kafka's Java clients and
kafka-python frame Snappy blocks that way; librdkafka does not.
"""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from threading import Lock

import pyarrow as pa

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_GZIP_WINDOW = 31
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
# The size of the header, bytes: the magic and two version numbers.
_XERIAL_HEAD = 16
# The greatest compression ratio: three bytes of a Snappy block copy at most 64.
_SNAPPY_RATIO = 22
_SIZE = struct.Struct(">i")
# The size of the parts in which a stream is decompressed, bytes.
_PART_BYTES = 1 << 18
# The limit of decompressed bytes in a request: the default of a consumer's fetch.max.bytes.
MOST_BYTES = 52_428_800


class Undecodable(Exception):
    """Error for bytes that cannot be decompressed."""


class Oversized(Exception):
    """Error for bytes that exceed the budget when they are decompressed."""


class Budget:
    """The number of bytes that a request may still decompress. Thread-safe.

    Bytes count whether their batch is accepted or refused.
    """

    def __init__(self, left: int = MOST_BYTES) -> None:
        self._lock = Lock()
        self.left = left

    def spend(self, size: int) -> None:
        """Subtract decompressed bytes. If fewer are left, set zero and raise Oversized."""
        with self._lock:
            left, self.left = self.left, max(0, self.left - size)
        if size > left:
            raise Oversized("with the rest of its request it is too large")


def decompress(codec: int, data: memoryview, budget: Budget) -> bytes:
    """Return the decompressed bytes of Kafka's codecs 1 to 4. Raises Undecodable and Oversized.

    A stream is charged to the budget while it is decompressed, because its declared size may be
    wrong. A Snappy block is charged before.
    """
    try:
        if codec == _GZIP:
            return _gzip(data, budget)
        if codec == _SNAPPY:
            return _snappy(bytes(data), budget)
        if codec in (_LZ4, _ZSTD):
            return _stream("lz4" if codec == _LZ4 else "zstd", data, budget)
    except (zlib.error, pa.ArrowException, OSError, struct.error, ValueError) as error:
        raise Undecodable(f"it cannot be decompressed: {error}") from error
    raise Undecodable(f"compression {codec} is not known")


def _gzip(data: memoryview, budget: Budget) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    found = BytesIO()
    rest: bytes | memoryview = data
    while part := stream.decompress(rest, _PART_BYTES):
        budget.spend(len(part))
        found.write(part)
        rest = stream.unconsumed_tail
    if not stream.eof:
        raise Undecodable("it is cut off")
    return found.getvalue()


def _stream(name: str, data: memoryview, budget: Budget) -> bytes:
    # A frame may have no size, or a wrong one, so it is read as a stream. `readinto` is used,
    # because a failed `read` of pyarrow leaks its buffer.
    part = bytearray(_PART_BYTES)
    found = BytesIO()
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        while size := stream.readinto(part):
            budget.spend(size)
            found.write(memoryview(part)[:size])
    return found.getvalue()


def _snappy(data: bytes, budget: Budget) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, budget)
    if len(data) < _XERIAL_HEAD:
        raise Undecodable("its head is cut off")
    blocks = []
    at = _XERIAL_HEAD
    while at < len(data):
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        if not 0 < size <= len(data) - at:
            raise Undecodable("a block of it is cut off")
        blocks.append(_snappy_block(data[at : at + size], budget))
        at += size
    return b"".join(blocks)


def _snappy_block(block: bytes, budget: Budget) -> bytes:
    size = shift = 0
    # A block begins with its size, seven bits a byte, the lowest first.
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    # The client declares the size, and pyarrow allocates it before it decompresses anything.
    if size > _SNAPPY_RATIO * len(block):
        raise Undecodable(f"a block of {len(block)} bytes says that it becomes {size}")
    budget.spend(size)
    found: bytes = pa.Codec("snappy").decompress(block, size, asbytes=True)
    return found
