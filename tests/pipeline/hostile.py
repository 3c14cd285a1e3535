"""Hostile bytes, numbers and names that a client may choose, and records with them."""

from __future__ import annotations

from hypothesis import strategies as st

from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    TopicPartition,
    encode_assignment,
)
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    OFFSET_COMMIT,
    CoordinatorRecord,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from tests.examples import texts

INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from((-(2**63), -1, 0, 1, 2**63 - 1))
INT32 = st.integers(-(2**31), 2**31 - 1) | st.sampled_from((-(2**31), -1, 0, 1, 2**31 - 1))
_PARTITIONS = st.lists(st.builds(TopicPartition, texts(5), INT32), unique=True, max_size=8)
ENCODED = st.builds(
    lambda partitions, data: encode_assignment(Assignment(tuple(partitions), data)),
    _PARTITIONS,
    st.none() | st.binary(max_size=5),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw an assignment with some of its bytes replaced, removed or inserted."""
    whole = draw(ENCODED)
    begin = draw(st.integers(0, len(whole)))
    end = draw(st.integers(begin, min(len(whole), begin + 6)))
    return whole[:begin] + draw(st.binary(max_size=6)) + whole[end:]


ASSIGNMENTS = ENCODED | damaged() | st.binary(max_size=60)


def stored_members(
    group: str, assignments: list[bytes], protocol_type: str = "consumer"
) -> CoordinatorRecord:
    """Draw a group's record with members that have these bytes as their assignments."""
    members = tuple(
        MemberMetadata(f"m{n}", None, f"c{n}", "/h", 1, 2, b"s", each)
        for n, each in enumerate(assignments)
    )
    value = GroupMetadataValue(protocol_type, 3, "range", "m0", 1, members)
    return CoordinatorRecord(_partition(group), GROUP_METADATA, group, 1, group_metadata=value)


def _partition(group: str) -> int:
    return len(group) % 3


def _committed(
    group: str, topic: str, partition: int, value: OffsetCommitValue | None
) -> CoordinatorRecord:
    return CoordinatorRecord(
        _partition(group), OFFSET_COMMIT, group, 5, None, topic, partition, offset_commit=value
    )


# Few names, so that some records have the same keys.
_GROUPS = st.sampled_from(("", "g", "'\"`--", "\U0001f600")) | texts(3)
_TOPICS = st.sampled_from(("t", "t", "elsewhere")) | texts(3)
RECORDS = st.builds(
    _committed,
    _GROUPS,
    _TOPICS,
    st.integers(0, 2) | INT32,
    st.none() | st.builds(OffsetCommitValue, INT64, INT32, texts(5), INT64, INT64),
) | st.builds(
    stored_members,
    _GROUPS,
    st.lists(ASSIGNMENTS, max_size=4),
    st.sampled_from(("consumer", "connect", "")),
)
