"""The compiled codec and kafka-python agree on schemas, bytes, values and invalid messages."""

from __future__ import annotations

import inspect
import json
import random
import uuid
from collections.abc import Iterator
from importlib import resources
from types import SimpleNamespace
from typing import Any

import pytest

from group_coordinator.schemas.kafka.reading import InvalidMessage, reader
from group_coordinator.schemas.kafka.schema import Field, covers, schema, underscored
from group_coordinator.schemas.kafka.structs import STRUCTS, GroupRequest, attribute, struct
from group_coordinator.schemas.kafka.writing import NotEncodable, writer
from tests.support import kafka_python

# kafka-python does not have this API. librdkafka reads its response in the gateway's tests.
_NOT_OF_KAFKA_PYTHON = "ConsumerGroupHeartbeat"
MESSAGES = sorted(
    each.name.removesuffix(".json")
    for each in resources.files("group_coordinator.schemas.kafka").iterdir()
    if each.name.endswith(".json") and not each.name.startswith(_NOT_OF_KAFKA_PYTHON)
)
# kafka-python takes these for sets of bits; this project does not set them.
LEFT_OUT = ("AuthorizedOperations", "int32")
NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
PADDING = b"\xff" * 3


def versions(name: str) -> Iterator[int]:
    return (version for version in range(100) if schema(name).is_valid(version))


def has(field: Field, version: int) -> bool:
    return covers(field.versions, version)


def is_left_out(field: Field) -> bool:
    name, kind = LEFT_OUT
    return field.name.endswith(name) and field.type == kind


# --- any message ----------------------------------------------------------------------------------


def any_struct(rng: random.Random, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    """Return values of a struct's fields by Kafka's names; tagged fields may be missing."""
    values = {}
    for field in fields:
        tagged = covers(field.tagged_versions, version)
        if is_left_out(field) or (tagged and rng.random() < 0.5):
            continue
        if has(field, version):
            value = any_value(rng, field, version)
            # A default value has no tag, but kafka-python writes one.
            if not (tagged and value in (field.default_value(), [])):
                values[field.name] = value
    return values


def any_value(rng: random.Random, field: Field, version: int) -> Any:
    if covers(field.nullable_versions, version) and rng.random() < 0.3:
        return None
    if field.is_list:
        return [any_item(rng, field, version) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return any_item(rng, field, version)


def any_item(rng: random.Random, field: Field, version: int) -> Any:
    kind = field.item_type
    if field.fields:
        return any_struct(rng, field.fields, version)
    if kind == "string":
        size = rng.choice((0, 1, 5, 5, 40, 130))
        return "".join(chr(rng.choice((97, 98, 0x20, 0xE9, 0x20AC, 0x1F600))) for _ in range(size))
    if kind in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 1, 20, 126, 127, 128, 300)))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "uuid":
        return rng.choice((bytes(16), rng.randbytes(16)))
    bits = NUMBERS.get(kind)
    if bits is None:
        return rng.randrange(2**16)
    return rng.choice((0, 1, -1, 2**bits - 1, -(2**bits), rng.randrange(2**bits)))


# --- as kafka-python and as the codec have it -----------------------------------------------------


def theirs(kind: Any, fields: tuple[Field, ...], values: dict[str, Any]) -> Any:
    """Return a message of kafka-python."""
    made = {}
    for field in fields:
        if field.name in values:
            value = values[field.name]
            if field.fields and value is not None:
                within = getattr(kind, field.item_type)
                if field.is_list:
                    value = [theirs(within, field.fields, each) for each in value]
                else:
                    value = theirs(within, field.fields, value)
            elif field.type == "uuid":
                value = uuid.UUID(bytes=value)
            elif field.item_type == "uuid":
                value = [uuid.UUID(bytes=each) for each in value]
            made[underscored(field.name)] = value
    return kind(**made)


def ours(name: str, fields: tuple[Field, ...], values: dict[str, Any]) -> Any:
    """Return an object with a message's attributes."""
    made = {}
    for field in fields:
        value = values.get(field.name, field.default_value())
        if field.fields and value is not None:
            if field.is_list:
                value = [ours(name, field.fields, each) for each in value]
            else:
                value = ours(name, field.fields, value)
        made[attribute(name, field)] = value
    return SimpleNamespace(**made)


def check_struct(
    name: str, fields: tuple[Field, ...], found: Any, values: dict[str, Any], version: int
) -> None:
    """Fail unless a Struct has the values, and defaults for fields that the version lacks."""
    if isinstance(found, GroupRequest):
        (group_id,) = (each.name for each in fields if each.name == "GroupId")
        assert found.group_id == values[group_id]
        found = found.body
    parameters = inspect.signature(type(found)).parameters
    for field in fields:
        own = attribute(name, field)
        if own not in parameters:
            assert type(found) in STRUCTS.values()
        elif field.name in values:
            check_value(name, field, getattr(found, own), values[field.name], version)
        elif not is_left_out(field):
            default = parameters[own].default
            if default is inspect.Parameter.empty:
                default = field.default_value()
            assert getattr(found, own) == default, field.name


def check_value(name: str, field: Field, found: Any, value: Any, version: int) -> None:
    if value is None or not field.is_list:
        check_item(name, field, found, value, version)
        return
    assert type(found) is tuple
    for each, expected in zip(found, value, strict=True):
        check_item(name, field, each, expected, version)


def check_item(name: str, field: Field, found: Any, value: Any, version: int) -> None:
    if field.fields and value is not None:
        check_struct(name, field.fields, found, value, version)
    else:
        assert found == value, field.name


def values_of(fields: tuple[Field, ...], found: Any, version: int) -> dict[str, Any]:
    """Return the values of a message of kafka-python, by Kafka's names.

    Raises ValueError for a forbidden null, which kafka-python always accepts.
    """
    values = {}
    for field in fields:
        own = underscored(field.name)
        tagged = covers(field.tagged_versions, version)
        if tagged and own not in (found.tags or ()):
            continue
        if has(field, version) and not is_left_out(field):
            values[field.name] = value_of(field, getattr(found, own), version)
    return values


def value_of(field: Field, found: Any, version: int) -> Any:
    if found is None and field.type != "uuid":
        if not covers(field.nullable_versions, version):
            raise ValueError(f"{field.name} is null")
        return None
    if field.is_list:
        return [item_of(field, each, version) for each in found]
    return item_of(field, found, version)


def item_of(field: Field, found: Any, version: int) -> Any:
    if field.item_type == "uuid":
        return bytes(16) if found is None else found.bytes
    if found is None:
        raise ValueError(f"a null is in {field.name}")
    return values_of(field.fields, found, version) if field.fields else found


# --- agreement ------------------------------------------------------------------------------------


def agree(name: str, version: int, rng: random.Random) -> None:
    """Fail unless both write and read a message alike, and accept or reject changed bytes alike."""
    fields = schema(name).fields
    values = any_struct(rng, fields, version)
    written = kafka_python.encode(theirs(kafka_python.message(name), fields, values), version)
    assert writer(name, version)(ours(name, fields, values)) == written
    found = reader(name, version)(PADDING + written + PADDING, len(PADDING))
    check_struct(name, fields, found, values, version)
    agree_on(name, version, changed(rng, written))


def changed(rng: random.Random, frame: bytes) -> bytes:
    """Return a frame that is cut off, or has other bytes in it, such as of a length."""
    at = rng.randrange(len(frame) + 1)
    other = rng.choice((
        b"", b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"\xff\xfe",
        b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f",
        b"\xff" * 6, b"\x80\x00", rng.randbytes(1), rng.randbytes(4),
    ))  # fmt: skip
    return frame[:at] + other + rng.choice((b"", frame[at + len(other) :], frame[at:]))


def agree_on(name: str, version: int, frame: bytes) -> None:
    """Fail unless both read the same from bytes, or both reject them."""
    fields = schema(name).fields
    try:
        expected, end = kafka_python.decode(name, version, frame)
        values = values_of(fields, expected, version)
    except kafka_python.UNREADABLE:
        with pytest.raises(InvalidMessage):
            reader(name, version)(frame, 0)
        return
    # kafka-python reads a list with a length below -1 as empty, and Kafka as null. It also skips
    # tagged fields with a wrong size.
    exact = kafka_python.encode(expected, version) == frame[:end]
    try:
        found = reader(name, version)(frame, 0)
    except InvalidMessage:
        if exact:
            raise
        return
    if exact or schema(name).is_flexible(version):
        check_struct(name, fields, found, values, version)


def check_agreement(name: str, count: int, seed: str) -> None:
    for version in versions(name):
        for number in range(count):
            try:
                agree(name, version, random.Random(f"{seed} {name} {version} {number}"))
            except BaseException as error:
                error.add_note(f"{name} version {version}, number {number} of {seed!r}")
                raise


@pytest.mark.parametrize("name", MESSAGES)
def test_both_agree(name: str) -> None:
    check_agreement(name, 10, "some")


@pytest.mark.long
@pytest.mark.parametrize("name", MESSAGES)
def test_both_agree_on_many(name: str) -> None:
    check_agreement(name, 300, "many")


# --- the schemas ----------------------------------------------------------------------------------

# Keys of Kafka's schemas that do not concern bytes or values.
STRIPPED = {
    "about", "deprecatedVersions", "entityType", "ignorable", "latestVersionUnstable", "listeners",
    "mapKey", "zeroCopy",
}  # fmt: skip
OF_RECORDS = {"OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue"}


def stripped(found: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in found.items() if key not in STRIPPED}
    if "fields" in kept:
        kept["fields"] = [stripped(each) for each in kept["fields"]]
    return kept


@pytest.mark.parametrize("name", sorted(set(MESSAGES) - OF_RECORDS))
def test_a_schema_is_as_kafka_python_has_it(name: str) -> None:
    own = resources.files("group_coordinator.schemas.kafka") / f"{name}.json"
    assert json.loads(own.read_bytes()) == stripped(kafka_python.json_of(name))
    assert len(MESSAGES) == len(OF_RECORDS) + 57


# --- values and bytes that are invalid ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version", "change"),
    [
        ("HeartbeatResponse", 0, {"error_code": 2**15}),
        ("HeartbeatResponse", 4, {"throttle_time_ms": None}),
        ("JoinGroupResponse", 0, {"leader": "x" * 2**15}),
        ("JoinGroupResponse", 6, {"protocol_name": None}),
        ("JoinGroupResponse", 9, {"leader": "\ud800"}),
        ("SyncGroupResponse", 5, {"assignment": None}),
        ("FetchResponse", 12, {"responses": None}),
        ("MetadataResponse", 12, {"topics": [object()]}),
    ],
)
def test_what_a_message_cannot_hold_is_refused(
    name: str, version: int, change: dict[str, Any]
) -> None:
    with pytest.raises(NotEncodable, match=f"no {name} can hold this"):
        writer(name, version)(struct(name)(**change))


def test_a_count_beyond_the_frame_costs_no_memory() -> None:
    for name, version, frame in [
        ("OffsetFetchRequest", 1, b"\x00\x00" + b"\x7f\xff\xff\xff"),
        ("OffsetFetchRequest", 8, b"\xff\xff\xff\xff\x0f"),
        ("FetchRequest", 12, bytes(21) + b"\x02\x01" + b"\xff\xff\xff\xff\x0f"),
    ]:
        with pytest.raises(InvalidMessage, match="longer than its frame"):
            reader(name, version)(frame, 0)


def test_a_strict_reader_leaves_nothing_over() -> None:
    frame = b"\x00\x01g"
    assert reader("GroupMetadataKey", 2, strict=True)(frame, 0).group == "g"
    assert reader("GroupMetadataKey", 2)(frame + b"?", 0).group == "g"
    with pytest.raises(InvalidMessage, match="1 bytes too many"):
        reader("GroupMetadataKey", 2, strict=True)(frame + b"?", 0)


def test_records_are_a_view_of_the_frame() -> None:
    topics = [{"Name": "t", "PartitionData": [{"Index": 0, "Records": b"records"}]}]
    values = {"TransactionalId": None, "Acks": 1, "TimeoutMs": 1, "TopicData": topics}
    fields = schema("ProduceRequest").fields
    frame = writer("ProduceRequest", 9)(ours("ProduceRequest", fields, values))
    ((partition,),) = (
        each.partition_data for each in reader("ProduceRequest", 9)(frame, 0).topic_data
    )
    assert isinstance(partition.records, memoryview) and partition.records.obj is frame
