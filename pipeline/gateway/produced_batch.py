"""A produced record batch, checked and taken apart as a broker does before it appends.

Source: Apache Kafka, DefaultRecordBatch, DefaultRecord and LogValidator; KIP-98.
"""

from __future__ import annotations

import struct

import google_crc32c

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.compression import Undecodable, decompress
from group_coordinator.pipeline.topics import NewBatch, TopicConfig
from group_coordinator.schemas.errors import ErrorCode

_HEAD = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
_RECORDS_AT = _HEAD.size + _COVERED.size
_MAGIC_AT = 16
_MAGIC = 2
_UNCOUNTED = 12
_CODEC, _IS_TRANSACTIONAL, _IS_CONTROL = 0x07, 0x10, 0x20
_ZSTD = 4
# From this version of Produce on zstd is taken (KIP-110).
_WITH_ZSTD = 7
_NONE = -1
# What a batch may have when it is decompressed, bytes; as much as a frame.
_MOST_BYTES = 100 << 20
# Times that a column of microseconds holds, ms.
_MOST_TIME = 2**63 // 1000 - 1


class Refused(Failure):
    """A batch that is not taken; `code` is Kafka's."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


def read_batch(
    partition: int, data: bytes | None, version: int, config: TopicConfig, now_ms: int
) -> NewBatch:
    """Return the records that a partition is sent by Produce of a version. Raises Refused."""
    if not data or len(data) < _RECORDS_AT:
        if data and len(data) > _MAGIC_AT and data[_MAGIC_AT] != _MAGIC:
            raise _old_format(data[_MAGIC_AT])
        raise Refused(ErrorCode.INVALID_RECORD, "there is no whole record batch")
    _, length, _, magic, crc = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise _old_format(magic)
    size = length + _UNCOUNTED
    if size < _RECORDS_AT or size > len(data):
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"a batch of {len(data)} bytes says {size}")
    if size < len(data):
        raise Refused(ErrorCode.INVALID_RECORD, "a partition is sent one batch at a time")
    if size > config.max_message_bytes:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes: max.message.bytes is {config.max_message_bytes}",
        )
    view = memoryview(data)
    if google_crc32c.value(data[_HEAD.size :]) != crc:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, "the batch's checksum is wrong")
    attributes, last_delta, base_time, _, producer_id, epoch, sequence, count = (
        _COVERED.unpack_from(data, _HEAD.size)
    )
    if attributes & _IS_TRANSACTIONAL:
        raise Refused(ErrorCode.INVALID_TXN_STATE, "there are no transactions here")
    if attributes & _IS_CONTROL:
        raise Refused(ErrorCode.INVALID_RECORD, "clients do not write control records")
    if count <= 0 or last_delta != count - 1:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"a batch of {count} records says that its last offset is {last_delta} more",
        )
    if producer_id != _NONE and (producer_id < 0 or epoch < 0 or sequence < 0):
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"producer {producer_id} has epoch {epoch} and sequence {sequence}",
        )
    records: bytes | memoryview = view[_RECORDS_AT:]
    codec = attributes & _CODEC
    if codec == _ZSTD and version < _WITH_ZSTD:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce 7 or later")
    if codec:
        try:
            records = decompress(codec, view[_RECORDS_AT:], _MOST_BYTES)
        except Undecodable as error:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    batch = _records(partition, bytes(records), count, base_time)
    batch.producer_id, batch.producer_epoch, batch.first_sequence = producer_id, epoch, sequence
    if config.message_timestamp_type == "CreateTime":
        _check_times(batch.timestamps, now_ms + config.message_timestamp_after_max_ms)
    return batch


def _old_format(magic: int) -> Refused:
    return Refused(ErrorCode.INVALID_RECORD, f"message format {magic}: only 2 is taken")


def _check_times(times: list[int], latest: int) -> None:
    if max(times) > latest:
        raise Refused(
            ErrorCode.INVALID_TIMESTAMP,
            f"a record's timestamp, {max(times)}, is beyond message.timestamp.after.max.ms",
        )
    if min(times) < -_MOST_TIME:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, f"there is no time {min(times)}")


def _records(partition: int, data: bytes, count: int, base_time: int) -> NewBatch:
    try:
        batch, end = _take_apart(partition, data, count, base_time)
    except (IndexError, ValueError) as error:
        raise Refused(ErrorCode.INVALID_RECORD, f"a record is torn: {error}") from error
    if end != len(data):
        raise Refused(ErrorCode.INVALID_RECORD, f"{len(data) - end} bytes follow the last record")
    return batch


def _take_apart(partition: int, data: bytes, count: int, base_time: int) -> tuple[NewBatch, int]:
    """The records, and where they end. Raises IndexError and ValueError for what is none.

    Numbers of one byte are read in place: nearly all are, and a call takes as long as the rest of
    a record.
    """
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    times: list[int] = []
    headers: list[tuple[tuple[str, bytes | None], ...]] = []
    has_headers = False
    at = 0
    for number in range(count):
        length, at = _number(data, at)
        end = at + length
        if length < 0 or end > len(data):
            raise ValueError(f"record {number} is longer than its batch")
        # Attributes, which have no meaning yet.
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
            some, at = _headers(data, at, end)
            headers.append(some)
            has_headers = True
        if at != end:
            raise ValueError(f"record {number} ends at {at}, and says {end}")
    if not has_headers:
        return NewBatch(partition, keys, values, times), at
    return NewBatch(partition, keys, values, times, headers), at


def _headers(data: bytes, at: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = _number(data, at)
    if not 0 <= count <= end - at:
        raise ValueError(f"{count} headers")
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
    """A number in zigzag order, seven bits a byte, and where it ends."""
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
