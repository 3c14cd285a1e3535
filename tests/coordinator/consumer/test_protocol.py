"""The bytes of subscriptions and assignments, ours and those that real clients sent."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

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
from tests.coordinator.consumer.assigning import tps

TRACES = Path(__file__).parents[3] / "pipeline" / "replay" / "traces"
FULL = Subscription(
    topics=("bar", "foo"),
    user_data=b"mine",
    owned_partitions=tuple(tps("bar-1 foo-0 foo-2")),
    generation_id=7,
    rack_id="rack-a",
)
GIVEN = Assignment(tuple(tps("foo-2 foo-0 bar-1")), b"yours")
# One topic "ab", user data 0xff, one owned partition ab-5, generation 9, rack "r".
BYTES_3 = bytes.fromhex(
    "0003 00000001 0002 6162 00000001 ff 00000001 0002 6162 00000001 00000005 00000009 0001 72"
)


# --- the bytes themselves -------------------------------------------------------------------------


def test_version_3_field_by_field() -> None:
    read = Subscription(("ab",), b"\xff", (TopicPartition("ab", 5),), 9, "r")
    assert decode_subscription(BYTES_3) == read
    assert encode_subscription(read) == BYTES_3


@pytest.mark.parametrize(
    ("version", "length"), [(0, 15), (1, 31), (2, 35), (3, 38)], ids=lambda value: str(value)
)
def test_each_version_adds_to_the_one_before(version: int, length: int) -> None:
    subscription = decode_subscription(BYTES_3)
    assert encode_subscription(subscription, version) == (
        version.to_bytes(2, "big") + BYTES_3[2:length]
    )


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_comes_back_as_far_as_its_version_goes(version: int) -> None:
    read = decode_subscription(encode_subscription(FULL, version))
    assert read == Subscription(
        FULL.topics,
        FULL.user_data,
        FULL.owned_partitions if version >= 1 else (),
        FULL.generation_id if version >= 2 else -1,
        FULL.rack_id if version >= 3 else None,
    )


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("user_data", [None, b"", b"\x00\x01"])
def test_an_assignment_comes_back(version: int, user_data: bytes | None) -> None:
    given = Assignment(GIVEN.partitions, user_data)
    blob = encode_assignment(given, version)
    assert blob[:2] == version.to_bytes(2, "big")
    assert decode_assignment(blob) == given


def test_topics_and_owned_partitions_are_written_in_order() -> None:
    """Kafka sorts both, so that a member that joins unchanged sends the same bytes again."""
    mixed = Subscription(("foo", "bar"), None, tuple(tps("foo-2 bar-1 foo-0")))
    ordered = Subscription(("bar", "foo"), None, tuple(tps("bar-1 foo-0 foo-2")))
    assert encode_subscription(mixed) == encode_subscription(ordered)


def test_the_instance_id_is_not_in_the_bytes() -> None:
    static = Subscription(("foo",), group_instance_id="one")
    assert decode_subscription(encode_subscription(static)).group_instance_id is None


def test_an_empty_rack_is_no_rack_and_a_generation_below_minus_one_none() -> None:
    odd = encode_subscription(Subscription(("foo",), generation_id=-5, rack_id=""))
    read = decode_subscription(odd)
    assert read.rack_id is None
    assert read.generation_id == -1


@pytest.mark.parametrize("version", [4, 32767])
def test_a_newer_version_begins_with_what_is_known(version: int) -> None:
    newer = version.to_bytes(2, "big")
    more = b"\x00\x00\x00\x01\xffmore"
    assert decode_subscription(newer + encode_subscription(FULL)[2:] + more) == FULL
    assert decode_assignment(newer + encode_assignment(GIVEN)[2:] + more) == GIVEN


# --- other clients --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_kafka_python_reads_what_we_write(version: int) -> None:
    theirs = ConsumerProtocolSubscription.decode(encode_subscription(FULL, version))
    assert theirs.version == version
    assert (theirs.topics, theirs.user_data) == (["bar", "foo"], b"mine")
    if version >= 1:
        assert [(o.topic, o.partitions) for o in theirs.owned_partitions] == [
            ("bar", [1]),
            ("foo", [0, 2]),
        ]
    given = ConsumerProtocolAssignment.decode(encode_assignment(GIVEN, version))
    assert given.partitions() == list(GIVEN.partitions)


def recorded(api: str, field: str) -> Iterator[bytes]:
    """The blobs of that field in the recorded requests and responses of an API."""

    def search(value: Any) -> Iterator[bytes]:
        if isinstance(value, dict):
            for name, inner in value.items():
                if name == field and isinstance(inner, str):
                    yield base64.b64decode(inner)
                else:
                    yield from search(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from search(inner)

    for trace in sorted(TRACES.glob("*.jsonl")):
        for line in trace.read_text().splitlines():
            for side in ("request", "response"):
                yield from search(json.loads(line).get(side, {}).get(api, {}))


def test_what_real_clients_sent_is_read_and_written_back_to_the_byte() -> None:
    """Java, kafka-python and aiokafka, against Kafka 4.1.0; two blobs are no subscriptions."""
    subscriptions = {blob for blob in recorded("join_group", "metadata") if blob}
    assert {blob[:2].hex() for blob in subscriptions} == {"0000", "0003", "ffff"}
    for blob in subscriptions - {b"\xff\xff"}:
        read = decode_subscription(blob)
        assert len(read.topics) == 1 and read.generation_id in (-1, 1)
        # librdkafka says that it has no rack with an empty one.
        empty_rack = msgspec.structs.replace(read, rack_id="")
        assert blob in (encode_subscription(of, blob[1]) for of in (read, empty_rack))
    with pytest.raises(ProtocolError, match="version -1"):
        decode_subscription(b"\xff\xff")

    assignments = {blob for blob in recorded("sync_group", "assignment") if len(blob) > 1}
    assert len(assignments) >= 30
    for blob in assignments:
        given = decode_assignment(blob)
        assert encode_assignment(given, blob[1]) == blob


# --- bytes that are none --------------------------------------------------------------------------

READERS: list[tuple[Callable[[bytes], Any], bytes, str]] = [
    (decode_subscription, encode_subscription(FULL), "ConsumerProtocolSubscription"),
    (decode_assignment, encode_assignment(GIVEN), "ConsumerProtocolAssignment"),
]


@pytest.mark.parametrize(("read", "blob", "name"), READERS, ids=["subscription", "assignment"])
def test_bytes_that_are_cut_short(read: Callable[[bytes], Any], blob: bytes, name: str) -> None:
    for length in range(len(blob)):
        with pytest.raises(ProtocolError, match=f"not {name}"):
            read(blob[:length])


@pytest.mark.parametrize(
    "blob",
    [
        "fffe 00000000 ffffffff",
        "0000 ffffffff ffffffff",
        "0000 fffffffe ffffffff",
        "0000 7fffffff ffffffff",
        "0000 00000001 ffff ffffffff",
        "0000 00000001 0001 ff ffffffff",
        "0001 00000000 ffffffff ffffffff",
        "0001 00000000 ffffffff 00000001 ffff 00000000",
        "0001 00000000 ffffffff 00000001 0001 61 ffffffff",
    ],
    ids=[
        "a negative version",
        "no list of topics",
        "a negative number of topics",
        "more topics than bytes",
        "a topic without a name",
        "a name that is no UTF-8",
        "no list of owned partitions",
        "an owned topic without a name",
        "no list of numbers",
    ],
)
def test_bytes_that_are_no_subscription(blob: str) -> None:
    with pytest.raises(ProtocolError, match="not ConsumerProtocolSubscription"):
        decode_subscription(bytes.fromhex(blob))


@pytest.mark.parametrize(
    "blob", ["0000 00000000 fffffffe", "0003 00000000 ffffffff 00000000 ffffffff fffe"]
)
def test_a_length_below_0_is_that_of_a_null_as_in_kafka(blob: str) -> None:
    assert decode_subscription(bytes.fromhex(blob)) == Subscription(())


@pytest.mark.parametrize(
    "wrong",
    [
        Subscription(("t" * 32768,)),
        Subscription(("foo",), owned_partitions=(TopicPartition("foo", 2**31),)),
        Subscription(("foo",), generation_id=2**31),
    ],
    ids=["topic", "partition", "generation"],
)
def test_what_no_bytes_can_hold(wrong: Subscription) -> None:
    with pytest.raises(ProtocolError, match="can hold this"):
        encode_subscription(wrong)


@pytest.mark.parametrize("version", [-1, 4])
def test_versions_that_cannot_be_written(version: int) -> None:
    with pytest.raises(ProtocolError, match=f"version {version} is known, only 0-3"):
        encode_subscription(FULL, version)
    with pytest.raises(ProtocolError, match=f"version {version} is known, only 0-3"):
        encode_assignment(GIVEN, version)
