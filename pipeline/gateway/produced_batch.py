"""Validation and decoding of a produced record batch, as in a broker before it appends.

Source: Apache Kafka, DefaultRecordBatch, DefaultRecord and LogValidator; KIP-98.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from group_coordinator.pipeline.gateway.batch_records import (
    PIECE_BYTES,
    TooMany,
    TornRecords,
    take_apart,
)
from group_coordinator.pipeline.gateway.compression import Oversized, Undecodable, decompress
from group_coordinator.pipeline.topics import (
    BatchRefused,
    NewBatch,
    TopicConfig,
    check_size,
    check_times,
)
from group_coordinator.schemas.errors import ErrorCode

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.compression import Budget

_HEAD = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
_RECORDS_AT = _HEAD.size + _COVERED.size
_MAGIC_AT = 16
_MAGIC = 2
_UNCOUNTED = 12
_CODEC, _IS_TRANSACTIONAL, _IS_CONTROL = 0x07, 0x10, 0x20
_ZSTD = 4
# From this version of Produce on, zstd is accepted (KIP-110).
_WITH_ZSTD = 7
_NONE = -1


class Opened(NamedTuple):
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
) -> Opened:
    """Return the decoded batch of a partition. Raises BatchRefused.

    `version` is the version of the Produce request. A batch that is too large when decompressed is
    also refused with MESSAGE_TOO_LARGE. Java's producer then splits it.
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
        batch, pieces = take_apart(partition, bytes(records), count, base_time)
    except TornRecords as error:
        raise BatchRefused(ErrorCode.INVALID_RECORD, str(error)) from error
    except TooMany as error:
        raise BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    batch.producer_id, batch.producer_epoch, batch.first_sequence = producer_id, epoch, sequence
    check_times(min(batch.timestamps), max(batch.timestamps), config, now_ms)
    return Opened(batch, len(records) + pieces * PIECE_BYTES)


def _old_format(magic: int) -> BatchRefused:
    return BatchRefused(ErrorCode.INVALID_RECORD, f"message format {magic}: only 2 is taken")
