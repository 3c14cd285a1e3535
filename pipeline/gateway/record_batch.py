"""The encoder of record batches in Kafka's message format 2, uncompressed, for Fetch.

Source: Apache Kafka, DefaultRecordBatch and DefaultRecord; KIP-98.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

import google_crc32c

from group_coordinator.schemas.kafka import writing

if TYPE_CHECKING:
    from collections.abc import Sequence

# The fields: base offset, length, partition leader epoch, magic, CRC.
_HEAD = struct.Struct(">qiibI")
# The fields: attributes, last offset delta, base and max timestamp, producer id and epoch, base
# sequence, number of records.
_CRC_COVERED = struct.Struct(">hiqqqhii")
_MAGIC = 2
# The attribute bit of batches with the timestamp type LogAppendTime.
_APPEND_TIME = 0x08
# The bytes that the length does not include: the base offset and the length itself.
_UNCOUNTED = 12
_LEADER_EPOCH = 0
_NO_PRODUCER = (-1, -1, -1)
_NULL = b"\x01"
_NO_HEADERS = b"\x00"


class BatchRecord(Protocol):
    """One record. A null value is a tombstone."""

    @property
    def offset(self) -> int:
        """The offset in its partition."""

    @property
    def timestamp_ms(self) -> int:
        """The timestamp, ms since 1970."""

    @property
    def key(self) -> bytes | None:
        """The key, or None."""

    @property
    def value(self) -> bytes | None:
        """The value; None for a tombstone."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """The headers, in order."""


def encode_batch(records: Sequence[BatchRecord], is_append_time: bool = False) -> bytes:
    """Return the batch of one or more records with rising offsets.

    `is_append_time`: the timestamp type is LogAppendTime, and all timestamps are equal.
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
    return writing.varint((number << 1) ^ (number >> 63))


# Lengths and deltas are nearly always small, and a table look-up is faster than encoding.
_TABLE = [_encode_varint(number) for number in range(8_192)]


def varint(number: int) -> bytes:
    """Return the zigzag varint of a signed number of at most 64 bits, as in Kafka's records."""
    return _TABLE[number] if 0 <= number < 8_192 else _encode_varint(number)
