"""Record batches of Kafka's message format 2: decoding for Produce, and encoding for Fetch.

A produced batch is validated as in a broker before it appends. Fetched batches are uncompressed.

Source: Apache Kafka, DefaultRecordBatch, DefaultRecord and LogValidator; KIP-98.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from group_coordinator.pipeline.gateway.compression import Oversized, Undecodable, decompress
from group_coordinator.pipeline.topics import (
    BatchRefused,
    NewBatch,
    TopicConfig,
    check_size,
    check_times,
)
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka import writing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.gateway.compression import Budget
    from group_coordinator.pipeline.topics import Record

# The fields: base offset, length, partition leader epoch, magic, CRC.
_HEAD = struct.Struct(">qiibI")
# The fields that the CRC covers: attributes, last offset delta, base and max timestamp, producer id
# and epoch, base sequence, number of records.
_COVERED = struct.Struct(">hiqqqhii")
_RECORDS_AT = _HEAD.size + _COVERED.size
_MAGIC_AT = 16
_MAGIC = 2
# The bytes that the length does not include: the base offset and the length itself.
_UNCOUNTED = 12
_CODEC, _IS_TRANSACTIONAL, _IS_CONTROL = 0x07, 0x10, 0x20
_ZSTD = 4
# From this version of Produce on, zstd is accepted (KIP-110).
_WITH_ZSTD = 7
_NONE = -1


class DecodedBatch(NamedTuple):
    """A decoded batch, and the approximate number of bytes that it takes in memory."""

    batch: NewBatch
    size: int


def producer_of(data: bytes | None) -> int:
    """Return the producer id in the header of a record batch; -1 without a complete header."""
    if not data or len(data) < _RECORDS_AT:
        return _NONE
    return int(_COVERED.unpack_from(data, _HEAD.size)[4])


def read_batch(
    partition: int,
    data: bytes | None,
    version: int,
    config: TopicConfig,
    now_ms: int,
    budget: Budget,
) -> DecodedBatch:
    """Return the decoded batch of a partition. Raises BatchRefused.

    `version` is the version of the Produce request. A batch that is too large when decompressed is
    refused with MESSAGE_TOO_LARGE, after which Java's producer splits it.
    """
    if not data or len(data) < _RECORDS_AT:
        if data and len(data) > _MAGIC_AT and data[_MAGIC_AT] != _MAGIC:
            raise _old_format(data[_MAGIC_AT])
        raise BatchRefused(ErrorCode.INVALID_RECORD, "there is no whole record batch")
    _, length, _, magic, crc = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise _old_format(magic)
    size = length + _UNCOUNTED
    if size < _RECORDS_AT or size > len(data):
        raise BatchRefused(ErrorCode.CORRUPT_MESSAGE, f"a batch of {len(data)} bytes says {size}")
    if size < len(data):
        raise BatchRefused(ErrorCode.INVALID_RECORD, "a partition is sent one batch at a time")
    check_size(size, config)
    view = memoryview(data)
    if google_crc32c.value(data[_HEAD.size :]) != crc:
        raise BatchRefused(ErrorCode.CORRUPT_MESSAGE, "the batch's checksum is wrong")
    attributes, last_delta, base_time, _, producer_id, epoch, sequence, count = (
        _COVERED.unpack_from(data, _HEAD.size)
    )
    if attributes & _IS_TRANSACTIONAL:
        raise BatchRefused(ErrorCode.INVALID_TXN_STATE, "there are no transactions here")
    if attributes & _IS_CONTROL:
        raise BatchRefused(ErrorCode.INVALID_RECORD, "clients do not write control records")
    if count <= 0 or last_delta != count - 1:
        raise BatchRefused(
            ErrorCode.INVALID_RECORD,
            f"a batch of {count} records says that its last offset is {last_delta} more",
        )
    if producer_id != _NONE and (producer_id < 0 or epoch < 0 or sequence < 0):
        raise BatchRefused(
            ErrorCode.INVALID_RECORD,
            f"producer {producer_id} has epoch {epoch} and sequence {sequence}",
        )
    records: bytes | memoryview = view[_RECORDS_AT:]
    codec = attributes & _CODEC
    if codec == _ZSTD and version < _WITH_ZSTD:
        raise BatchRefused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce 7 or later")
    if codec:
        try:
            records = decompress(codec, view[_RECORDS_AT:], budget)
        except Undecodable as error:
            raise BatchRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except Oversized as error:
            raise BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    try:
        batch, pieces = decode_records(partition, bytes(records), count, base_time)
    except CorruptRecords as error:
        raise BatchRefused(ErrorCode.INVALID_RECORD, str(error)) from error
    except TooManyRecords as error:
        raise BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    batch.producer_id, batch.producer_epoch, batch.first_sequence = producer_id, epoch, sequence
    check_times(min(batch.timestamps), max(batch.timestamps), config, now_ms)
    return DecodedBatch(batch, len(records) + pieces * PIECE_BYTES)


def _old_format(magic: int) -> BatchRefused:
    return BatchRefused(ErrorCode.INVALID_RECORD, f"message format {magic}: only 2 is taken")


# --- decoding of records --------------------------------------------------------------------------


# The limit of records and headers in a batch. A compressed header may take less than a bit. In
# memory, each takes about `PIECE_BYTES` in addition to its content.
_MOST_PIECES = 500_000
PIECE_BYTES = 100
_Headers = tuple[tuple[str, "bytes | None"], ...]


class CorruptRecords(Exception):
    """Error for bytes that are not the records that the batch header declares."""


class TooManyRecords(Exception):
    """Error for a batch with more records and headers than allowed."""


def decode_records(partition: int, data: bytes, count: int, base_time: int) -> tuple[NewBatch, int]:
    """Decode the records; return them, and the number of records plus headers.

    Raises CorruptRecords and TooManyRecords. `base_time` is in ms.
    """
    try:
        batch, pieces, end = _decode_records(partition, data, count, base_time)
    except (IndexError, ValueError) as error:
        raise CorruptRecords(f"a record is torn: {error}") from error
    if end != len(data):
        raise CorruptRecords(f"{len(data) - end} bytes follow the last record")
    return batch, pieces


def _decode_records(
    partition: int, data: bytes, count: int, base_time: int
) -> tuple[NewBatch, int, int]:
    """Return the records, the number of records plus headers, and the end position.

    Raises IndexError and ValueError for invalid bytes. Varints of one byte, nearly all of them, are
    decoded inline, because a call takes as long as the rest of a record.
    """
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    times: list[int] = []
    headers: list[_Headers] = []
    at, pieces = 0, count
    # A count that exceeds the bytes fails below, when the bytes end.
    _check(min(count, len(data)))
    for number in range(count):
        length, at = _number(data, at)
        end = at + length
        if length < 0 or end > len(data):
            raise ValueError(f"record {number} is longer than its batch")
        # The attributes, which are unused in this message format.
        at += 1
        delta, at = _number(data, at)
        times.append(base_time + delta)
        offset, at = _number(data, at)
        if offset != number:
            raise ValueError(f"record {number} has the offset {offset}")
        for found in (keys, values):
            byte = data[at]
            if byte < 0x80:
                at += 1
                size = (byte >> 1) ^ -(byte & 1)
            else:
                size, at = _number(data, at)
            if size < 0:
                found.append(None)
            else:
                found.append(data[at : at + size])
                at += size
        if data[at] == 0:
            at += 1
            headers.append(())
        else:
            size, at = _number(data, at)
            if not 0 <= size <= end - at:
                raise ValueError(f"{size} headers")
            pieces += size
            _check(pieces)
            some, at = _headers(data, at, end, size)
            headers.append(some)
        if at != end:
            raise ValueError(f"record {number} ends at {at}, and says {end}")
    if pieces == count:
        return NewBatch(partition, keys, values, times), pieces, at
    return NewBatch(partition, keys, values, times, headers), pieces, at


def _check(pieces: int) -> None:
    if pieces > _MOST_PIECES:
        raise TooManyRecords(f"it has more than {_MOST_PIECES} records and headers")


def _headers(data: bytes, at: int, end: int, count: int) -> tuple[_Headers, int]:
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = _number(data, at)
        if size < 0 or at + size > end:
            raise ValueError("a header's key is longer than its record")
        key = data[at : at + size].decode(errors="replace")
        at += size
        size, at = _number(data, at)
        if at + size > end:
            raise ValueError("a header's value is longer than its record")
        found.append((key, None if size < 0 else data[at : at + size]))
        at += max(size, 0)
    return tuple(found), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag-encoded varint and its end position."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than ten bytes")


# --- encoding -------------------------------------------------------------------------------------

# The attribute bit of batches with the timestamp type LogAppendTime.
_APPEND_TIME = 0x08
_LEADER_EPOCH = 0
_NO_PRODUCER = (-1, -1, -1)
_NULL = b"\x01"
_NO_HEADERS = b"\x00"


def encode_batch(records: Sequence[Record], is_append_time: bool = False) -> bytes:
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
                _encode_headers(record.headers) if record.headers else _NO_HEADERS,
            )
        )
        parts.append(varint(len(body)))
        parts.append(body)
    covered = _COVERED.pack(
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


def _encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
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
