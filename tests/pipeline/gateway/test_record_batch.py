"""Record batches are Kafka's, byte for byte those of kafka-python's own builder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from group_coordinator.pipeline.gateway.default_record_batch import encode_batch, varint
from tests.examples import texts


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


NUMBERS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 2**62)
BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(texts(max_size=9), BYTES), max_size=3)
RECORDS = st.lists(st.tuples(TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=20)


@given(st.integers(0, 2**62), RECORDS)
def test_a_batch_is_read_as_it_was_written(base: int, drawn: list[Any]) -> None:
    records = [Record(base + number, *fields) for number, fields in enumerate(drawn)]
    batch = DefaultRecordBatch(encode_batch(records))
    assert batch.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    assert read == records


def test_a_batch_has_the_bytes_of_another_builder() -> None:
    records = [
        Record(n, 1_700_000_000_000 + n, b"k%d" % n if n % 3 else None, b"v" * n, [("h", b"1")])
        for n in range(200)
    ]
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for record in records:
        builder.append(record.offset, record.timestamp_ms, record.key, record.value, record.headers)
    theirs = bytes(builder.build())
    ours = encode_batch(records)
    # The leader's epoch, which a producer does not know, is not covered by the CRC.
    assert ours[:12] == theirs[:12]
    assert ours[16:] == theirs[16:]


@given(NUMBERS)
def test_a_varint_has_seven_bits_a_byte(number: int) -> None:
    encoded, value = varint(number), 0
    assert all(byte & 0x80 for byte in encoded[:-1]) and not encoded[-1] & 0x80
    for at, byte in enumerate(encoded):
        value |= (byte & 0x7F) << (7 * at)
    assert (value >> 1) ^ -(value & 1) == number


@pytest.mark.parametrize("value", [b"", b"x" * 70_000])
def test_an_empty_value_is_not_a_tombstone(value: bytes) -> None:
    (read,) = DefaultRecordBatch(encode_batch([Record(3, 5, None, value)]))
    assert (read.offset, read.key, read.value) == (3, None, value)
