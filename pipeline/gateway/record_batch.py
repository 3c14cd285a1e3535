"""Record batches of Kafka's message format 2, as Fetch sends them: written, not compressed.

Source: Apache Kafka, DefaultRecordBatch and DefaultRecord; KIP-98.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

import google_crc32c

from group_coordinator.schemas.kafka import writing

if TYPE_CHECKING:
    from collections.abc import Sequence

# base offset, length, partition leader epoch, magic, CRC.
_HEAD = struct.Struct(">qiibI")
# attributes, last offset delta, base and greatest timestamp, producer id and epoch, base sequence,
# how many records.
_CRC_COVERED = struct.Struct(">hiqqqhii")
_MAGIC = 2
# The attribute of a batch whose records have the time of their append.
_APPEND_TIME = 0x08
# What the length does not count: the base offset and the length itself.
_UNCOUNTED = 12
_LEADER_EPOCH = 0
_NO_PRODUCER = (-1, -1, -1)
_NULL = b"\x01"
_NO_HEADERS = b"\x00"


class BatchRecord(Protocol):
    """One record: its offset, timestamp in ms, and what it holds. A null value is a tombstone."""

    @property
    def offset(self) -> int:
        """Its place in its partition."""

    @property
    def timestamp_ms(self) -> int:
        """Its time, ms since 1970."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Its headers, in order."""


def encode_batch(records: Sequence[BatchRecord], is_append_time: bool = False) -> bytes:
    """The batch of one or more records, whose offsets rise.

    `is_append_time`: the records' time, one for all, is that of their append.
    """
    base_offset, base_timestamp = records[0].offset, records[0].timestamp_ms
    parts = []
    for record in records:
        key, value = record.key, record.value
        body = b"".join(
            (
                b"\x00",
                varint(record.timestamp_ms - base_timestamp),
                varint(record.offset - base_offset),
                _NULL if key is None else varint(len(key)) + key,
                _NULL if value is None else varint(len(value)) + value,
                _headers(record.headers) if record.headers else _NO_HEADERS,
            )
        )
        parts.append(varint(len(body)))
        parts.append(body)
    covered = _CRC_COVERED.pack(
        _APPEND_TIME if is_append_time else 0,
        records[-1].offset - base_offset,
        base_timestamp,
        max(record.timestamp_ms for record in records),
        *_NO_PRODUCER,
        len(records),
    ) + b"".join(parts)
    length = _HEAD.size - _UNCOUNTED + len(covered)
    return (
        _HEAD.pack(base_offset, length, _LEADER_EPOCH, _MAGIC, google_crc32c.value(covered))
        + covered
    )


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts.append(_NULL if value is None else varint(len(value)) + value)
    return b"".join(parts)


def _encode_varint(number: int) -> bytes:
    """A number of at most 64 bits in zigzag order, seven bits a byte, the lowest first."""
    return writing.varint((number << 1) ^ (number >> 63))


# Lengths and deltas are nearly always small, and a look-up is faster than computing.
_TABLE = [_encode_varint(number) for number in range(8_192)]


def varint(number: int) -> bytes:
    """A signed number of at most 64 bits as Kafka writes it in records."""
    return _TABLE[number] if 0 <= number < 8_192 else _encode_varint(number)
