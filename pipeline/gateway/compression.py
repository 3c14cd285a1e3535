"""Decompression of a record batch's records, within a budget of bytes.

Source: Apache Kafka, CompressionType; the frame of snappy-java, in which Kafka's Java clients and
kafka-python wrap blocks of Snappy, and which librdkafka does not use.
"""

from __future__ import annotations

import struct
import zlib
from io import BytesIO

import pyarrow as pa

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_GZIP_WINDOW = 31
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
# The magic, and two versions.
_XERIAL_HEAD = 16
# Three bytes of a block of Snappy copy 64 at most.
_SNAPPY_RATIO = 22
_SIZE = struct.Struct(">i")
# What is decompressed at once.
_PART_BYTES = 1 << 20


class Undecodable(Exception):
    """Bytes that cannot be decompressed."""


class Oversized(Exception):
    """Bytes that would be more than are taken, once they are decompressed."""


def decompress(codec: int, data: memoryview, most_bytes: int) -> bytes:
    """Return what was compressed by Kafka's codec 1 to 4. Raises Undecodable and Oversized.

    No more is decompressed than `most_bytes` and one, whatever sizes the bytes themselves tell.
    """
    try:
        if codec == _GZIP:
            return _gzip(data, most_bytes)
        if codec == _SNAPPY:
            return _snappy(bytes(data), most_bytes)
        if codec in (_LZ4, _ZSTD):
            return _stream("lz4" if codec == _LZ4 else "zstd", data, most_bytes)
    except (zlib.error, pa.ArrowException, OSError, struct.error, ValueError) as error:
        raise Undecodable(f"it cannot be decompressed: {error}") from error
    raise Undecodable(f"compression {codec} is not known")


def _gzip(data: memoryview, most_bytes: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    found = stream.decompress(data, most_bytes + 1)
    if len(found) <= most_bytes and not stream.eof:
        raise Undecodable("it is cut off")
    if len(found) > most_bytes:
        raise _oversized(most_bytes)
    return found


def _stream(name: str, data: memoryview, most_bytes: int) -> bytes:
    # A frame need not tell its size, and may lie about it, so it is read as a stream.
    found = BytesIO()
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        while part := stream.read(_PART_BYTES):
            if found.tell() + len(part) > most_bytes:
                raise _oversized(most_bytes)
            found.write(part)
    return found.getvalue()


def _snappy(data: bytes, most_bytes: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, most_bytes)
    if len(data) < _XERIAL_HEAD:
        raise Undecodable("its head is cut off")
    blocks = []
    at, left = _XERIAL_HEAD, most_bytes
    while at < len(data):
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        if not 0 < size <= len(data) - at:
            raise Undecodable("a block of it is cut off")
        block = _snappy_block(data[at : at + size], left)
        blocks.append(block)
        left -= len(block)
        at += size
    return b"".join(blocks)


def _snappy_block(block: bytes, most_bytes: int) -> bytes:
    size = shift = 0
    # A block begins with its size, seven bits a byte, the lowest first.
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    # The size is told by the client, and is allocated before anything is decompressed.
    if size > _SNAPPY_RATIO * len(block):
        raise Undecodable(f"a block of {len(block)} bytes says that it becomes {size}")
    if size > most_bytes:
        raise _oversized(most_bytes)
    found: bytes = pa.Codec("snappy").decompress(block, size, asbytes=True)
    return found


def _oversized(most_bytes: int) -> Oversized:
    return Oversized(f"it becomes more than {most_bytes} bytes")
