"""Kafka's own bytes: all versions are read, the right one is written, unknown ones are detected.

Tests have the names of Kafka's own cases. The expected bytes are written by hand, field by field,
from the format's description. So no codec checks itself.
"""

from __future__ import annotations

import json
from importlib import resources

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.schemas.kafka.codec import (
    Corrupt,
    Decoded,
    UnknownKey,
    decode,
    encode_key,
    encode_value,
)
from group_coordinator.schemas.kafka.writing import NotEncodable
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    OFFSET_COMMIT,
    CoordinatorRecord,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    binary_size,
)
from tests.examples import texts

NOW = 1_700_000_000_000
NOW_HEX = "0000018bcfe56800"
LATER = NOW + 1

OFFSET_KEY = bytes.fromhex("00010001 670003 666f6f00000007")
GROUP_KEY = bytes.fromhex("00020001 67")


def offset_record(value: OffsetCommitValue | None) -> CoordinatorRecord:
    return CoordinatorRecord(
        3, OFFSET_COMMIT, "g", NOW, topic="foo", topic_partition=7, offset_commit=value
    )


def group_record(value: GroupMetadataValue | None) -> CoordinatorRecord:
    return CoordinatorRecord(3, GROUP_METADATA, "g", NOW, group_metadata=value)


def offset_value(
    epoch: int = NO_LEADER_EPOCH, metadata: str = "", expire: int = NO_TIMESTAMP
) -> OffsetCommitValue:
    return OffsetCommitValue(42, epoch, metadata, NOW, expire)


def member(instance: str | None = "i", rebalance: int = 60_000) -> MemberMetadata:
    return MemberMetadata("m", instance, "c", "h", rebalance, 45_000, b"s", b"aa")


def group_value(*members: MemberMetadata, since: int = NOW) -> GroupMetadataValue:
    return GroupMetadataValue("consumer", 3, "range", "m", since, members)


def decoded_offset(value: bytes) -> OffsetCommitValue:
    found = decode(OFFSET_KEY, value)
    assert isinstance(found, Decoded), found
    assert found.offset_commit is not None and found.group_metadata is None
    return found.offset_commit


def decoded_group(value: bytes) -> GroupMetadataValue:
    found = decode(GROUP_KEY, value)
    assert isinstance(found, Decoded), found
    assert found.group_metadata is not None and found.offset_commit is None
    return found.group_metadata


def corrupt_reason(key: bytes | None, value: bytes | None) -> str:
    found = decode(key, value)
    assert isinstance(found, Corrupt), found
    return found.reason


# --- the bytes, by hand ---------------------------------------------------------------------------

OFFSET_VALUES = {
    0: f"0000 000000000000002a 0002 6d64 {NOW_HEX}",
    1: f"0001 000000000000002a 0002 6d64 {NOW_HEX} 0000018bcfe56801",
    2: f"0002 000000000000002a 0002 6d64 {NOW_HEX}",
    3: f"0003 000000000000002a 00000005 0002 6d64 {NOW_HEX}",
    4: f"0004 000000000000002a 00000005 03 6d64 {NOW_HEX} 00",
}
OFFSETS_READ = {
    0: offset_value(metadata="md"),
    1: offset_value(metadata="md", expire=LATER),
    2: offset_value(metadata="md"),
    3: offset_value(5, "md"),
    4: offset_value(5, "md"),
}

HEAD = "0008 636f6e73756d6572 00000003 0005 72616e6765 0001 6d"
CLIENT = "0001 63 0001 68"
BLOBS = "00000001 73 00000002 6161"
GROUP_VALUES = {
    0: f"0000 {HEAD} 00000001 0001 6d {CLIENT} 0000afc8 {BLOBS}",
    1: f"0001 {HEAD} 00000001 0001 6d {CLIENT} 0000ea60 0000afc8 {BLOBS}",
    2: f"0002 {HEAD} {NOW_HEX} 00000001 0001 6d {CLIENT} 0000ea60 0000afc8 {BLOBS}",
    3: f"0003 {HEAD} {NOW_HEX} 00000001 0001 6d 0001 69 {CLIENT} 0000ea60 0000afc8 {BLOBS}",
    4: f"0004 09 636f6e73756d6572 00000003 06 72616e6765 02 6d {NOW_HEX} 02"
    "  02 6d 02 69 02 63 02 68 0000ea60 0000afc8 02 73 03 6161 00  00",
}
GROUPS_READ = {
    0: group_value(member(None, 45_000), since=NO_TIMESTAMP),
    1: group_value(member(None), since=NO_TIMESTAMP),
    2: group_value(member(None)),
    3: group_value(member()),
    4: group_value(member()),
}


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_every_version_of_an_offset_is_read(version: int) -> None:
    assert decoded_offset(bytes.fromhex(OFFSET_VALUES[version])) == OFFSETS_READ[version]


@pytest.mark.parametrize("version", [0, 1])
def test_both_versions_of_an_offsets_key_are_read(version: int) -> None:
    key = bytes([0, version]) + OFFSET_KEY[2:]
    assert decode(key, None) == Decoded(OFFSET_COMMIT, "g", "foo", 7)


def test_keys_are_written() -> None:
    assert encode_key(offset_record(offset_value())) == OFFSET_KEY
    assert encode_key(group_record(group_value())) == GROUP_KEY


def test_a_group_without_members_has_neither_protocol_nor_leader() -> None:
    empty = GroupMetadataValue("", 0, None, None, NOW, ())
    value = bytes.fromhex(f"0003 0000 00000000 ffff ffff {NOW_HEX} 00000000")
    assert encode_value(group_record(empty)) == value
    assert decoded_group(value) == empty


def test_a_record_without_a_value_is_a_tombstone() -> None:
    assert encode_value(offset_record(None)) is None
    assert encode_value(group_record(None)) is None
    found = decode(GROUP_KEY, None)
    assert found == Decoded(GROUP_METADATA, "g")
    assert isinstance(found, Decoded) and found.is_tombstone
    kept = decode(OFFSET_KEY, encode_value(offset_record(offset_value())))
    assert isinstance(kept, Decoded) and not kept.is_tombstone


# --- Kafka's cases --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_r25_old_group_values_are_read(version: int) -> None:
    group = decoded_group(bytes.fromhex(GROUP_VALUES[version]))
    assert group == GROUPS_READ[version]
    assert (group.protocol_type, group.protocol, group.generation) == ("consumer", "range", 3)
    assert [each.group_instance_id for each in group.members] == [None]


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_r26_the_state_timestamp_is_there_from_version_2_on(version: int) -> None:
    group = decoded_group(bytes.fromhex(GROUP_VALUES[version]))
    assert group.current_state_timestamp == (NOW if version >= 2 else NO_TIMESTAMP)


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_r27_an_unknown_value_version_is_named(version: int) -> None:
    head = version.to_bytes(2, "big", signed=True)
    group = bytes.fromhex(GROUP_VALUES[4])[2:]
    offset = bytes.fromhex(OFFSET_VALUES[4])[2:]
    expected = f"Unknown group metadata message version: {version}"
    assert corrupt_reason(GROUP_KEY, head + group) == expected
    assert corrupt_reason(OFFSET_KEY, head + offset) == f"Unknown offset message version: {version}"


@pytest.mark.parametrize("version", [-1, 9, 15, 17, 32767])
def test_r28_an_unknown_key_version_is_no_error(version: int) -> None:
    key = version.to_bytes(2, "big", signed=True) + b"whatever it means"
    assert decode(key, b"anything") == UnknownKey(version)
    assert decode(key, None) == UnknownKey(version)
    assert UnknownKey(version).reason == f"unknown key version {version}"


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7, 8, 16])
def test_a_key_of_a_later_kind_tells_its_group_and_is_kept(version: int) -> None:
    head = version.to_bytes(2, "big")
    for key in (head + b"\0\1g", head + b"\0\1g\0\1m"):
        for value in (None, b"", b"\0\0anything"):
            found = decode(key, value)
            assert isinstance(found, Decoded)
            assert (found.group_id, found.key, found.value) == ("g", key, value)
            assert found.record_type.startswith("consumer_group_")
            assert found.is_tombstone == (value is None)
    for cut in (b"", b"\0", b"\0\2g", b"\xff\xff", b"\0\1\xff"):
        assert isinstance(decode(head + cut, None), Corrupt)


def test_r29_known_records_around_an_unknown_one_are_read() -> None:
    group = bytes.fromhex(GROUP_VALUES[3])
    offset = bytes.fromhex(OFFSET_VALUES[3])
    log = [(GROUP_KEY, group), (bytes.fromhex("0009 0001 67"), b"?"), (OFFSET_KEY, offset)]
    found = [decode(key, value) for key, value in log]
    assert [each for each in found if isinstance(each, Decoded)] == [
        Decoded(GROUP_METADATA, "g", group_metadata=GROUPS_READ[3]),
        Decoded(OFFSET_COMMIT, "g", "foo", 7, offset_commit=OFFSETS_READ[3]),
    ]


def test_v01_an_offset_below_version_3_has_no_leader_epoch() -> None:
    versions = {
        version: decoded_offset(bytes.fromhex(OFFSET_VALUES[version])) for version in range(4)
    }
    epochs = {version: value.leader_epoch for version, value in versions.items()}
    assert epochs == {0: -1, 1: -1, 2: -1, 3: 5}


def test_v02_an_expire_timestamp_is_written_as_version_1_without_the_epoch() -> None:
    value = encode_value(offset_record(offset_value(5, "md", LATER)))
    assert value == bytes.fromhex(OFFSET_VALUES[1])
    assert decoded_offset(value) == offset_value(NO_LEADER_EPOCH, "md", LATER)


@pytest.mark.parametrize("epoch", [NO_LEADER_EPOCH, 0, 5])
def test_v03_without_an_expire_timestamp_version_3_is_written(epoch: int) -> None:
    value = encode_value(offset_record(offset_value(epoch)))
    assert value is not None and value[:2] == b"\x00\x03"
    assert decoded_offset(value) == offset_value(epoch)


def test_v04_a_group_is_written_as_version_3() -> None:
    assert encode_value(group_record(group_value(member()))) == bytes.fromhex(GROUP_VALUES[3])


def test_v05_an_offset_is_written_as_version_3() -> None:
    assert encode_value(offset_record(offset_value(5, "md"))) == bytes.fromhex(OFFSET_VALUES[3])
    assert encode_value(offset_record(offset_value())) == bytes.fromhex(
        f"0003 000000000000002a ffffffff 0000 {NOW_HEX}"
    )


def test_v06_version_4_of_a_group_is_read() -> None:
    assert decoded_group(bytes.fromhex(GROUP_VALUES[4])) == GROUPS_READ[4]


def test_v07_version_4_of_an_offset_is_read() -> None:
    assert decoded_offset(bytes.fromhex(OFFSET_VALUES[4])) == OFFSETS_READ[4]


TAGS = "02  00 10 000102030405060708090a0b0c0d0e0f  87 68 03 616263"


def test_v08_unknown_tagged_fields_of_an_offset_are_ignored() -> None:
    value = bytes.fromhex(OFFSET_VALUES[4])[:-1] + bytes.fromhex(TAGS)
    assert decoded_offset(value) == OFFSETS_READ[4]


def test_v09_unknown_tagged_fields_of_a_group_and_its_members_are_ignored() -> None:
    value = bytes.fromhex(GROUP_VALUES[4])[:-2] + bytes.fromhex(TAGS + TAGS)
    assert decoded_group(value) == GROUPS_READ[4]


# --- what cannot be read, and what cannot be written ----------------------------------------------


def test_a_key_that_is_missing_or_too_short_is_corrupt() -> None:
    assert corrupt_reason(None, None) == "no key"
    assert corrupt_reason(b"", None) == "a key of 0 bytes, too short for its version"
    assert corrupt_reason(GROUP_KEY, b"\x00") == "a value of 1 bytes, too short for its version"


VALUES = [(OFFSET_KEY, bytes.fromhex(text)) for text in OFFSET_VALUES.values()]
VALUES += [(GROUP_KEY, bytes.fromhex(text)) for text in GROUP_VALUES.values()]


@pytest.mark.parametrize(("key", "value"), VALUES)
def test_bytes_that_are_cut_short_or_too_many_are_corrupt(key: bytes, value: bytes) -> None:
    for length in range(len(value)):
        corrupt_reason(key, value[:length])
    assert corrupt_reason(key, value + b"??").endswith(": 2 bytes too many")
    for length in range(len(key)):
        corrupt_reason(key[:length], value)


def test_a_tagged_field_that_is_cut_short_is_corrupt() -> None:
    value = bytes.fromhex(OFFSET_VALUES[4])[:-1] + bytes.fromhex("01 00 10 0001")
    assert corrupt_reason(OFFSET_KEY, value) == (
        "not OffsetCommitValue version 4: a tagged field is longer than its frame"
    )


@pytest.mark.parametrize("count", ["ffffffff", "fffffffb", "7fffffff"])
def test_a_number_of_members_that_cannot_be_is_corrupt(count: str) -> None:
    corrupt_reason(GROUP_KEY, bytes.fromhex(f"0003 {HEAD} {NOW_HEX} {count}"))


def test_a_null_where_there_must_be_text_is_corrupt() -> None:
    value = bytes.fromhex(f"0003 000000000000002a ffffffff ffff {NOW_HEX}")
    assert "metadata is null" in corrupt_reason(OFFSET_KEY, value)
    assert "group is null" in corrupt_reason(bytes.fromhex("0002 ffff"), None)


def test_text_that_is_not_utf_8_is_corrupt() -> None:
    assert "utf-8" in corrupt_reason(bytes.fromhex("0002 0001 ff"), None)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (CoordinatorRecord(0, "share_group", "g", NOW), "unknown record type 'share_group'"),
        (
            CoordinatorRecord(0, OFFSET_COMMIT, "g", NOW, topic="t"),
            "without its topic or topic_partition",
        ),
        (
            CoordinatorRecord(0, GROUP_METADATA, "g" * 32768, NOW),
            "no GroupMetadataKey can hold this",
        ),
    ],
)
def test_a_key_that_kafka_has_no_form_for_is_refused(
    record: CoordinatorRecord, reason: str
) -> None:
    with pytest.raises(NotEncodable, match=reason):
        encode_key(record)


def test_a_value_that_kafka_has_no_form_for_is_refused() -> None:
    with pytest.raises(NotEncodable, match="no OffsetCommitValue can hold this"):
        encode_value(offset_record(offset_value(metadata="x" * 32768)))
    # It must not become a tombstone.
    other = msgspec.structs.replace(group_record(None), offset_commit=offset_value())
    with pytest.raises(NotEncodable, match="a group_metadata record with a value of another type"):
        encode_value(other)


# --- any record -----------------------------------------------------------------------------------

TEXT = texts(max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
BLOB = st.binary(max_size=20)
OFFSETS = st.builds(OffsetCommitValue, INT64, INT32, TEXT, INT64, st.just(NO_TIMESTAMP) | INT64)
MEMBERS = st.builds(MemberMetadata, TEXT, st.none() | TEXT, TEXT, TEXT, INT32, INT32, BLOB, BLOB)
GROUPS = st.builds(
    GroupMetadataValue,
    TEXT,
    INT32,
    st.none() | TEXT,
    st.none() | TEXT,
    INT64,
    st.lists(MEMBERS, max_size=4).map(tuple),
)
RECORDS = st.one_of(
    st.builds(
        CoordinatorRecord,
        st.integers(0, 49),
        st.just(OFFSET_COMMIT),
        TEXT,
        INT64,
        topic=TEXT,
        topic_partition=INT32,
        offset_commit=st.none() | OFFSETS,
    ),
    st.builds(
        CoordinatorRecord,
        st.integers(0, 49),
        st.just(GROUP_METADATA),
        TEXT,
        INT64,
        group_metadata=st.none() | GROUPS,
    ),
)


@given(RECORDS)
def test_what_is_written_is_read_again(record: CoordinatorRecord) -> None:
    found = decode(encode_key(record), encode_value(record))
    assert isinstance(found, Decoded)
    expected = record
    offset = record.offset_commit
    if offset is not None and offset.expire_timestamp != NO_TIMESTAMP:
        kept = msgspec.structs.replace(offset, leader_epoch=NO_LEADER_EPOCH)
        expected = msgspec.structs.replace(record, offset_commit=kept)
    assert found.record(record.partition, record.timestamp, "why") == msgspec.structs.replace(
        expected, reason="why"
    )


@given(RECORDS)
def test_the_size_of_a_record_is_that_of_its_bytes(record: CoordinatorRecord) -> None:
    offset = record.offset_commit
    expires = offset is not None and offset.expire_timestamp != NO_TIMESTAMP
    # Read as version 3; version 1 has an expire timestamp in place of the leader epoch.
    size = binary_size(record) + (4 if expires else 0)
    assert size == len(encode_key(record)) + len(encode_value(record) or b"")


@given(st.binary(max_size=60), st.none() | st.binary(max_size=200))
def test_any_bytes_are_told_what_they_are(key: bytes, value: bytes | None) -> None:
    for version in (b"", b"\x00\x01", b"\x00\x02"):
        assert isinstance(decode(version + key, value), Decoded | UnknownKey | Corrupt)


@given(st.sampled_from(VALUES), st.integers(2, 60), st.integers(0, 255))
def test_a_changed_byte_raises_nothing(record: tuple[bytes, bytes], at: int, byte: int) -> None:
    key, value = record
    at %= len(value)
    changed = value[:at] + bytes([byte]) + value[at + 1 :]
    assert isinstance(decode(key, changed), Decoded | Corrupt)


@pytest.mark.parametrize(
    "name", ["OffsetCommitKey", "GroupMetadataKey", "OffsetCommitValue", "GroupMetadataValue"]
)
def test_every_field_of_a_schema_says_what_it_is(name: str) -> None:
    schema = json.loads(
        (resources.files("group_coordinator.schemas.kafka") / f"{name}.json").read_text("utf-8")
    )
    assert schema["name"] == name
    fields = list(schema["fields"])
    fields += [inner for field in fields for inner in field.get("fields", ())]
    assert all(field["about"].endswith(".") for field in fields)
