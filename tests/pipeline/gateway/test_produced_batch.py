"""Record batches as clients send them: taken as they were meant, or refused with Kafka's code."""

from __future__ import annotations

import gzip
import struct
import zlib
from contextlib import suppress
from random import Random
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.pipeline.gateway.compression import MOST_BYTES, Budget
from group_coordinator.pipeline.gateway.default_record_batch import encode_batch, read_batch, varint
from group_coordinator.pipeline.topics import BatchRefused, NewBatch, Record, TopicConfig
from group_coordinator.schemas.errors import ErrorCode
from tests.examples import texts

NOW = 1_700_000_000_000
CODECS = {"gzip": 1, "snappy": 2, "xerial": 2, "lz4": 3, "zstd": 4}
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(texts(max_size=9), BYTES), max_size=3)
RECORDS = st.lists(st.tuples(st.integers(0, NOW), BYTES, BYTES, HEADERS), min_size=1, max_size=9)
SOME = [Record(n, NOW + n, b"key", b"value" * 20) for n in range(50)]


def read(
    data: bytes | None, version: int = 9, budget: Budget | None = None, **config: Any
) -> NewBatch:
    return read_batch(3, data, version, TopicConfig(**config), NOW, budget or Budget()).batch


def refused(data: bytes | None, *args: Any, **config: Any) -> ErrorCode:
    with pytest.raises(BatchRefused) as found:
        read(data, *args, **config)
    return found.value.code


def changed(data: bytes, **fields: int) -> bytes:
    """The batch with other fields, and the checksum that goes with them."""
    places = {
        "attributes": (21, ">h"),
        "last_delta": (23, ">i"),
        "producer_id": (43, ">q"),
        "epoch": (51, ">h"),
        "sequence": (53, ">i"),
        "count": (57, ">i"),
    }
    batch = bytearray(data)
    for name, value in fields.items():
        place, form = places[name]
        struct.pack_into(form, batch, place, value)
    return summed(batch)


def summed(batch: bytearray) -> bytes:
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    return bytes(batch)


def with_records(data: bytes, records: bytes, **fields: int) -> bytes:
    return changed(summed(bytearray(data[:61] + records)), **fields)


def compressed(name: str, records: bytes) -> bytes:
    if name == "gzip":
        return gzip.compress(records)
    if name == "xerial":
        halves = [records[: len(records) // 2], records[len(records) // 2 :]]
        blocks = [pa.Codec("snappy").compress(half, asbytes=True) for half in halves]
        head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
        return head + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    found: bytes = pa.Codec(name).compress(records, asbytes=True)
    return found


@given(RECORDS)
def test_a_batch_is_taken_apart_as_it_was_put_together(drawn: list[Any]) -> None:
    records = [Record(number, *fields) for number, fields in enumerate(drawn)]
    batch = read(encode_batch(records), message_timestamp_after_max_ms=2**62)
    assert batch.partition == 3
    assert batch.keys == [record.key for record in records]
    assert batch.values == [record.value for record in records]
    assert batch.timestamps == [record.timestamp_ms for record in records]
    headers = batch.headers or [()] * len(records)
    assert headers == [tuple(record.headers) for record in records]
    assert batch.producer_id == -1


@pytest.mark.parametrize("name", CODECS)
def test_records_are_decompressed(name: str) -> None:
    plain = encode_batch(SOME)
    batch = with_records(plain, compressed(name, plain[61:]), attributes=CODECS[name])
    assert len(batch) < len(plain)
    assert read(batch) == read(plain)
    torn = with_records(plain, compressed(name, plain[61:])[:-20], attributes=CODECS[name])
    assert refused(torn) is ErrorCode.CORRUPT_MESSAGE
    assert refused(with_records(plain, b"no such thing", attributes=CODECS[name])) in (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
    )


def lone(value: bytes) -> bytes:
    """The records' bytes of a batch of one record."""
    return encode_batch([Record(0, NOW, None, value)])[61:]


def lone_batch(name: str, value: bytes) -> bytes:
    records = compressed(name, lone(value))
    return with_records(encode_batch(SOME[:1]), records, attributes=CODECS[name])


def torn(name: str, value: bytes) -> bytes:
    """A batch whose compressed records are followed by bytes that cannot be decompressed."""
    records = compressed(name, lone(value)) + b"no such thing"
    return with_records(encode_batch(SOME[:1]), records, attributes=CODECS[name])


@pytest.mark.parametrize("name", CODECS)
def test_what_becomes_too_large_is_sent_again_in_parts(name: str) -> None:
    size = len(lone(bytes(100_000)))
    batch = lone_batch(name, bytes(100_000))
    assert read(batch, budget=Budget(size)).values == [bytes(100_000)]
    assert refused(batch, budget=Budget(size - 1)) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_becomes_as_large_as_what_a_consumer_fetches_by_default() -> None:
    value = bytes(MOST_BYTES - len(lone(bytes(MOST_BYTES))) + MOST_BYTES)
    assert read(lone_batch("zstd", value)).values == [value]
    assert refused(lone_batch("zstd", value + b"\0")) is ErrorCode.MESSAGE_TOO_LARGE


def test_the_batches_of_a_request_share_what_they_may_become() -> None:
    budget = Budget(250_000)
    batch = lone_batch("zstd", bytes(100_000))
    assert read(batch, budget=budget) == read(batch, budget=budget)
    assert refused(batch, budget=budget) is ErrorCode.MESSAGE_TOO_LARGE
    # What is not compressed becomes no larger than it was sent.
    plain = encode_batch([Record(0, NOW, None, bytes(100_000))])
    assert read(plain, budget=budget).values == [bytes(100_000)]


def test_a_header_of_half_a_byte_takes_its_place_in_memory() -> None:
    """4,669 bytes became 25,000,000 headers, which took 2.0 GB and 16 s."""
    count = 600_000
    body = b"\0\0\0\1\1" + varint(count) + b"\0\1" * count
    records = compressed("zstd", varint(len(body)) + body)
    batch = with_records(encode_batch(SOME[:1]), records, attributes=CODECS["zstd"])
    assert len(batch) < 500
    assert refused(batch) is ErrorCode.MESSAGE_TOO_LARGE


def test_so_does_a_record_of_nothing() -> None:
    count = 500_001
    empty = encode_batch([Record(n, NOW, None, None) for n in range(count)])
    assert refused(empty, max_message_bytes=len(empty)) is ErrorCode.MESSAGE_TOO_LARGE


def test_an_honest_batch_near_max_message_bytes_is_taken() -> None:
    random = Random(7)
    lines = [
        b'{"type": "order shipped", "id": %d, "at": %d, "currency": "EUR", "price": %d}'
        % (random.getrandbits(40), NOW + n, random.randrange(10_000))
        for n in range(52_000)
    ]
    plain = encode_batch([Record(n, NOW + n, None, line) for n, line in enumerate(lines)])
    batch = with_records(plain, compressed("zstd", plain[61:]), attributes=CODECS["zstd"])
    assert 800_000 < len(batch) < TopicConfig().max_message_bytes
    assert len(plain) > 4_000_000
    assert read(batch).values == lines


def test_a_batch_whose_checksum_is_wrong_is_corrupt() -> None:
    batch = bytearray(encode_batch(SOME))
    batch[-1] ^= 1
    assert refused(bytes(batch)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (encode_batch(SOME)[:40], ErrorCode.INVALID_RECORD),
        (encode_batch(SOME)[:-1], ErrorCode.CORRUPT_MESSAGE),
        (encode_batch(SOME) * 2, ErrorCode.INVALID_RECORD),
        (changed(encode_batch(SOME), count=51), ErrorCode.INVALID_RECORD),
        (changed(encode_batch(SOME), count=-1, last_delta=-2), ErrorCode.INVALID_RECORD),
        (changed(encode_batch(SOME), count=49, last_delta=48), ErrorCode.INVALID_RECORD),
        (
            changed(encode_batch(SOME), count=2**31 - 1, last_delta=2**31 - 2),
            ErrorCode.INVALID_RECORD,
        ),
        (changed(encode_batch(SOME), attributes=0x10), ErrorCode.INVALID_TXN_STATE),
        (changed(encode_batch(SOME), attributes=0x20), ErrorCode.INVALID_RECORD),
        (changed(encode_batch(SOME), attributes=7), ErrorCode.CORRUPT_MESSAGE),
        (changed(encode_batch(SOME), producer_id=5), ErrorCode.INVALID_RECORD),
        (encode_batch([Record(0, NOW + 4_000_000, None, None)]), ErrorCode.INVALID_TIMESTAMP),
        (encode_batch([Record(0, 2**62, None, None)]), ErrorCode.INVALID_TIMESTAMP),
        (encode_batch([Record(0, -(2**62), None, None)]), ErrorCode.INVALID_TIMESTAMP),
        (
            with_records(encode_batch(SOME[:1]), varint(9) + b"\0" * 9),
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
def test_what_is_no_batch_is_refused(batch: bytes | None, code: ErrorCode) -> None:
    assert refused(batch) is code


@pytest.mark.parametrize("time", [2**63 // 1000, 2**63 - 1, -(2**63)])
def test_a_time_that_a_table_cannot_have_is_refused_however_far_ahead_times_may_be(
    time: int,
) -> None:
    """It would fail the commit, with all other producers' batches in it."""
    batch = encode_batch([Record(0, time, None, None)])
    found = refused(batch, message_timestamp_after_max_ms=2**63 - 1)
    assert found is ErrorCode.INVALID_TIMESTAMP


def test_an_old_message_format_is_refused() -> None:
    batch = bytearray(encode_batch(SOME))
    batch[16] = 1
    assert refused(bytes(batch)) is ErrorCode.INVALID_RECORD


def test_a_batch_may_be_too_large() -> None:
    batch = encode_batch(SOME)
    assert read(batch, max_message_bytes=len(batch))
    assert refused(batch, max_message_bytes=len(batch) - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_produce_7() -> None:
    plain = encode_batch(SOME)
    batch = with_records(plain, compressed("zstd", plain[61:]), attributes=4)
    assert refused(batch, version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_the_time_of_the_append_makes_the_producers_not_matter() -> None:
    batch = encode_batch([Record(0, 2**62, None, None)])
    assert read(batch, message_timestamp_type="LogAppendTime")


@given(st.data())
def test_mutated_batches_are_taken_or_refused(data: st.DataObject) -> None:
    headers = [("name", b"value"), ("", None), ("two", b"")]
    records = [Record(n, NOW + n, b"key", b"value", headers[:n]) for n in range(4)]
    batch = bytearray(encode_batch(records))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(21, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    # Any other exception would be a broken connection for the client, and a stack trace.
    with suppress(BatchRefused):
        assert read(summed(batch)).values


@given(st.lists(st.tuples(texts(max_size=9), BYTES), min_size=1, max_size=3), st.data())
def test_headers_that_lie_about_a_size_are_refused(drawn: list[Any], data: st.DataObject) -> None:
    sizes = [len(drawn)]
    contents = [b""]
    for name, value in drawn:
        sizes += [len(name.encode()), -1 if value is None else len(value)]
        contents += [name.encode(), value or b""]

    def batch() -> bytes:
        fields = b"".join(varint(n) + each for n, each in zip(sizes, contents, strict=True))
        body = b"\0\0\0" + varint(-1) * 2 + fields
        return with_records(encode_batch(SOME[:1]), varint(len(body)) + body)

    assert read(batch()).headers == [tuple(drawn)]
    place = data.draw(st.integers(0, len(sizes) - 1))
    # A key that takes a few bytes of its value may leave another value, and null may become empty:
    # both are headers, if other ones.
    runs_out = place == 0 or (place == len(sizes) - 1 and sizes[place] >= 0)
    least = 1 if runs_out else 1_000
    sizes[place] += data.draw(st.integers(least, least + 2) | st.integers(1_000, 2**30))
    assert refused(batch()) is ErrorCode.INVALID_RECORD


def test_a_cut_off_gzip_is_not_taken_for_a_whole_one() -> None:
    plain = encode_batch(SOME)
    cut = zlib.compress(plain[61:], wbits=31)[:-9]
    assert refused(with_records(plain, cut, attributes=1)) is ErrorCode.CORRUPT_MESSAGE
