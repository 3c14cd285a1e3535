"""For any bytes from outside: a decoder returns their content, or raises its documented errors.

The bytes come from a client, another engine, or a file that was written or damaged by another
program. Each decoder is tested with valid messages with changed, removed and inserted bytes. Each
position of these messages is also treated as a false length.

Other tests cover the meaning of Kafka's messages (`tests.schemas.test_kafka_codec`), the memory of
compressions (`tests.pipeline.gateway.test_compression`), bytes sent to a running gateway
(`tests.pipeline.gateway.test_fuzz`), and macros of the views (`tests.pipeline.monitor`).
"""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.coordinator.consumer.assignors import sticky_assignors as user_data
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    ProtocolError,
    Subscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from group_coordinator.coordinator.group.classic_group import subscribed_topics
from group_coordinator.coordinator.group.control import readable_records
from group_coordinator.coordinator.signatures import RequestKey, Signatures, signed
from group_coordinator.pipeline.delta.commit import NotWhole, parse_commit
from group_coordinator.pipeline.delta.protocol import writer_features
from group_coordinator.pipeline.delta.replay import TableState
from group_coordinator.pipeline.delta.table import decode_last_checkpoint
from group_coordinator.pipeline.gateway import users
from group_coordinator.pipeline.gateway.apis import APIS
from group_coordinator.pipeline.gateway.authenticator import AuthenticationFailed, Scram
from group_coordinator.pipeline.gateway.compression import (
    Budget,
    Oversized,
    Undecodable,
    decompress,
)
from group_coordinator.pipeline.gateway.default_record_batch import encode_batch, read_batch
from group_coordinator.pipeline.gateway.wire import InvalidFrame, read_body, read_header
from group_coordinator.pipeline.tables import request_keys
from group_coordinator.pipeline.tables.segment_stats import decode_bounds, partition_of
from group_coordinator.pipeline.topics import BatchRefused, Record, TopicConfig
from group_coordinator.pipeline.topics.record_batch import to_rows
from group_coordinator.schemas.decoding import Malformed, decode_request, refusal
from group_coordinator.schemas.kafka.codec import decode as decode_record
from group_coordinator.schemas.kafka.codec import encode_key, encode_value
from group_coordinator.schemas.kafka.schema import schema
from group_coordinator.schemas.messages import HeartbeatRequest, RequestEvent
from tests.examples import examples
from tests.pipeline.gateway.security.test_mechanisms import OneUser
from tests.pipeline.gateway.test_produced_batch import (
    CODECS,
    NOW,
    SOME,
    compressed,
    summed,
    with_records,
)
from tests.schemas.test_kafka_codec import any_struct, theirs
from tests.schemas.test_kafka_records import group_record, group_value, member, offset_record
from tests.support import kafka_python

# The maximum of Python's memory that a decoder uses, bytes: some times its input.
_TIMES, _BESIDE = 300, 1 << 20


class Decoder(NamedTuple):
    """A decoder of bytes: some valid bytes, the function that reads them, and its errors.

    `read` fails with an AssertionError if a decoded value is out of its bounds.
    """

    valid: Sequence[bytes]
    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...] = ()


def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    """Return a decoder of complete text."""
    return lambda data: read(data.decode(errors="replace"))


# --- what a client sends --------------------------------------------------------------------------


def requests() -> Iterator[tuple[str, Decoder]]:
    """Yield the body of each API's request, in each version."""
    for api in APIS.values():
        for version in api.row.versions:
            rng = random.Random(f"{api.request} {version}")
            fields = schema(api.request).fields
            kind = kafka_python.message(api.request)
            bodies = [
                kafka_python.encode(theirs(kind, fields, any_struct(rng, fields, version)), version)
                for _ in range(8)
            ]

            def read(data: bytes, api: Any = api, version: int = version) -> object:
                return read_body(api, version, data, 0)

            # Each position of it is tested.
            shortest = sorted(bodies, key=len)[1:2]
            yield f"{api.request} {version}", Decoder(shortest, read, (InvalidFrame,))


HEADER = b"\0\x0c\0\4\0\0\0\7\0\2me\0"


def header(data: bytes) -> object:
    found = read_header(data, lambda _key, version: version >= 4)
    assert found.body_at <= len(data)
    return found


def batch(data: bytes) -> object:
    """Encode an accepted batch again."""
    config = TopicConfig(message_timestamp_after_max_ms=2**63 - 1)
    opened = read_batch(3, data, 9, config, NOW, Budget(1 << 20))
    assert len(opened.batch.keys) == len(opened.batch.values) == len(opened.batch.timestamps) > 0
    return to_rows("t", [opened.batch], 0, None)


def batches() -> list[bytes]:
    headers: Any = [("h", b"1"), ("", None)]
    plain = encode_batch([*SOME[:2], Record(2, NOW, None, None, headers)])
    some = [plain]
    for name, codec in CODECS.items():
        some.append(with_records(plain, compressed(name, plain[61:]), attributes=codec))
    return some


def compressions() -> Iterator[tuple[str, Decoder]]:
    content = b"records " * 20

    def reads(codec: int) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            found = decompress(codec, memoryview(data), Budget(1_000))
            assert len(found) <= 1_000
            return found

        return read

    for name, codec in CODECS.items():
        yield name, Decoder([compressed(name, content)], reads(codec), (Undecodable, Oversized))


SCRAM_FIRST = b"n,,n=user,r=abc"
SCRAM_LAST = "c=biws,r=abcSERVER"
PROVED = OneUser("SCRAM-SHA-256", "pencil").proof(
    f"n=user,r=abc,r=abcSERVER,s=c2FsdA==,i=1,{SCRAM_LAST}"
)


def scram(*before: bytes) -> Callable[[bytes], object]:
    """Return a decoder of the next token of an exchange."""

    def read(data: bytes) -> object:
        here = OneUser("SCRAM-SHA-256", "pencil")
        exchange = Scram("SCRAM-SHA-256", cast(users.Users, here), "SERVER")
        for each in before:
            asyncio.run(exchange.answer(each))
        return asyncio.run(exchange.answer(data))

    return read


# --- what members, senders and Kafka's topic have -------------------------------------------------

PARTITIONS = tuple(TopicPartition(topic, n) for topic in ("t", "tü") for n in range(2))
SUBSCRIPTION = Subscription(("t", "tü"), b"data", PARTITIONS, 7, "rack")
KEY = RequestKey("key", "User:me", b"s" * 32)
REQUEST = RequestEvent(
    request_id="r",
    group_id="g",
    api="heartbeat",
    heartbeat=HeartbeatRequest(5, "m"),
    principal="User:me",
)
SIGNED = msgspec.json.encode(signed(REQUEST, KEY))


def subscription(data: bytes) -> object:
    """Encode a subscription again, and check that the same is decoded from it."""
    read = decode_subscription(data)
    assert decode_subscription(encode_subscription(read)).topics == tuple(sorted(read.topics))
    return read


def assignment(data: bytes) -> object:
    read = decode_assignment(data)
    assert sorted(decode_assignment(encode_assignment(read)).partitions) == sorted(read.partitions)
    return read


def request(data: bytes) -> object:
    """Check that the signer of an accepted request has signed its claims."""
    refusal(data)
    event = decode_request(data)
    if isinstance(event, Malformed):
        return event
    judged = Signatures([KEY]).verify(event)
    if judged.signer is not None:
        assert msgspec.structs.replace(event, sent_at=None) == signed(REQUEST, KEY)
    return event


OFFSET, GROUP = offset_record(None), group_record(group_value(member(), member(None)))


def records(data: bytes) -> object:
    return decode_record(data, None), decode_record(encode_key(GROUP), data)


# --- what tables and files have -------------------------------------------------------------------

INFO = b'{"commitInfo":{"engineInfo":"group-coordinator","numActions":3,"timestamp":5}}'
ADD = (
    b'{"add":{"path":"a%20b/c.parquet","size":7,"modificationTime":5,"dataChange":true,'
    b'"partitionValues":{"p":"1"},"stats":"{\\"numRecords\\":3}","tags":{"t":null}}}'
)
TXN = b'{"txn":{"appId":"log-end/3","version":7,"lastUpdated":5}}'
PROTOCOL = b'{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"writerFeatures":["a"]}}'
SCHEMA = msgspec.json.encode(
    {
        "type": "struct",
        "fields": [
            {
                "name": "n",
                "type": {"type": "array", "elementType": {"type": "struct", "fields": []}},
                "nullable": True,
                "metadata": {"delta.invariants": "x"},
            }
        ],
    }
).decode()
DESCRIBED = msgspec.json.encode(
    {
        "metaData": {
            "id": "i",
            "schemaString": SCHEMA,
            "partitionColumns": ["p"],
            "configuration": {"delta.appendOnly": "true"},
        }
    }
)
STATS = (
    b'{"numRecords":3,"segment":{"base":1,"end":4,"minTimestamp":5,"maxTimestamp":6,"batches":[]}}'
)


def commit(data: bytes) -> object:
    """Apply a commit's entries about files and the table, whatever they are."""
    state: TableState[Any] = TableState(lambda added: added, lambda _app_id: True)
    state.take_commit(parse_commit(data))
    return state.description, writer_features(state)


def note(data: bytes) -> object:
    read = decode_last_checkpoint(data)
    assert read is None or 0 <= read.version < 2**63
    return read


USER = msgspec.json.encode(users.new_credential("me", "pass", "SCRAM-SHA-256"))

DECODERS: dict[str, Decoder] = {
    **dict(requests()),
    "a request's header": Decoder([HEADER], header, (InvalidFrame,)),
    "a batch": Decoder(batches(), batch, (BatchRefused,)),
    "a batch with its checksum": Decoder(
        batches(), lambda data: batch(summed(bytearray(data)) if len(data) > 61 else data),
        (BatchRefused,),
    ),
    **dict(compressions()),
    "a first token of SCRAM": Decoder([SCRAM_FIRST], scram(), (AuthenticationFailed,)),
    "a last token of SCRAM": Decoder(
        [f"{SCRAM_LAST},p={PROVED}".encode()], scram(SCRAM_FIRST), (AuthenticationFailed,)
    ),
    "a subscription": Decoder(
        [encode_subscription(SUBSCRIPTION, version) for version in range(4)],
        subscription,
        (ProtocolError,),
    ),
    "topics of a subscription": Decoder(
        [encode_subscription(SUBSCRIPTION)], lambda data: subscribed_topics([data])
    ),
    "an assignment": Decoder(
        [encode_assignment(Assignment(PARTITIONS, b"data"))], assignment, (ProtocolError,)
    ),
    "a claim": Decoder([user_data.encode_claim(PARTITIONS, 7)], user_data.decode_claim),
    "a generation": Decoder([user_data.encode_generation(7)], user_data.decode_generation),
    "a request of the table": Decoder([SIGNED], request),
    "a row of the offsets topic": Decoder(
        [msgspec.json.encode(GROUP)], lambda data: readable_records([msgspec.Raw(data)])
    ),
    "Kafka's key and value": Decoder(
        [encode_key(OFFSET), encode_key(GROUP), cast(bytes, encode_value(GROUP))], records
    ),
    "a commit": Decoder(
        [b"\n".join([INFO, ADD, TXN]), b"\n".join([PROTOCOL, DESCRIBED])], commit, (NotWhole,)
    ),
    "the note of a checkpoint": Decoder([b'{"version":7,"size":9,"parts":null}'], note),
    "a file's statistics": Decoder([STATS], text(decode_bounds)),
    "a transaction identifier": Decoder([b"log-end/3"], text(partition_of)),
    "a line of users": Decoder(
        [USER], lambda data: users._read_line(Path("u"), 1, data), (users.UsersError,)
    ),
    "a line of keys": Decoder(
        [msgspec.json.encode(KEY)],
        lambda data: request_keys._read_line("k", 1, data),
        (request_keys.KeysError,),
    ),
}  # fmt: skip

# Limits of numbers, and lengths of 2, 4 and 8 bytes and of varints; invalid UTF-8; deep nesting.
EDGES = (
    b"", b"\0", b"\x7f", b"\x80", b"\xff", b"\x7f\xff", b"\xff\xff", b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x80" + bytes(7),
    b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff" * 10, b'"', b"{", b"}", b"[", b"]",
    b",", b":", b"null", b"1e999", b"-1", b"9" * 30, b"\\ud800", b"[" * 2_000, b'{"a":' * 2_000,
)  # fmt: skip
LIES = (
    b"\x7f\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\x7f",
)  # fmt: skip
CHANGES = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 8), st.sampled_from(EDGES) | st.binary(max_size=6)),
    min_size=1,
    max_size=3,
)


def changed(valid: bytes, changes: Sequence[tuple[float, int, bytes]]) -> bytes:
    """Return a message with some bytes replaced."""
    for share, size, other in changes:
        at = round(share * len(valid))
        valid = valid[:at] + other + valid[at + size :]
    return valid


def decoded(name: str, data: bytes) -> object:
    """Decode bytes; return None for a documented error."""
    decoder = DECODERS[name]
    try:
        return decoder.read(data)
    except decoder.errors:
        return None


@pytest.mark.parametrize("name", DECODERS)
def test_a_valid_message_is_read(name: str) -> None:
    assert any(decoded(name, each) is not None for each in DECODERS[name].valid)


MESSAGES = st.sampled_from(list(DECODERS)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(DECODERS[name].valid))
)


@examples(800)
@given(MESSAGES, CHANGES)
def test_a_changed_message_is_read_or_refused(
    message: tuple[str, bytes], changes: list[tuple[float, int, bytes]]
) -> None:
    name, valid = message
    decoded(name, changed(valid, changes))


@examples(500)
@given(st.sampled_from(list(DECODERS)), st.binary(max_size=80))
def test_so_are_bytes_of_chance(name: str, data: bytes) -> None:
    decoded(name, data)


@pytest.mark.parametrize("name", DECODERS)
def test_a_length_that_is_a_lie_takes_no_memory(name: str) -> None:
    tracemalloc.start()
    try:
        for valid in DECODERS[name].valid:
            for at in range(len(valid)):
                for lie in LIES:
                    tracemalloc.reset_peak()
                    before = tracemalloc.get_traced_memory()[0]
                    decoded(name, valid[:at] + lie + valid[at + len(lie) :])
                    taken = tracemalloc.get_traced_memory()[1] - before
                    assert taken < _TIMES * len(valid) + _BESIDE, (at, lie)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", DECODERS)
def test_a_message_may_end_anywhere(name: str) -> None:
    for valid in DECODERS[name].valid:
        for end in range(len(valid)):
            decoded(name, valid[:end])
