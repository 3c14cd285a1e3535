"""Expiry of committed offsets after their retention time.

Source: Apache Kafka, OffsetMetadataManager.cleanupExpiredOffsets and
ClassicGroup.offsetExpirationCondition; KIP-211, KAFKA-8730 (topics without subscribers),
KAFKA-13636 (only while Stable).
"""

from __future__ import annotations

from collections.abc import Callable

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.delete import delete_group
from group_coordinator.coordinator.group.group import Group
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.records import NO_TIMESTAMP, OffsetCommitValue

REASON = "offsets expired"
# The latest time that a signed 64-bit integer can hold.
LAST_MS = 2**63 - 1

# Return the start of an offset's retention time, absolute ms.
BaseTimestamp = Callable[[OffsetCommitValue], int]


def cleanup(decision: Decision) -> None:
    """Delete the expired offsets, and the group if it is then Empty without offsets."""
    group = decision.group
    if group is None:
        return
    expired = []
    for topic, index in expired_offsets(group, decision.now, decision.config.offsets_retention_ms):
        # One by one: together they may exceed max.message.bytes. The next run retries failures.
        if decision.append(decision.offset_record(topic, index, None, REASON)) is ErrorCode.NONE:
            group.offsets.drop(topic, index)
            expired.append(f"{topic}-{index}")
    if expired:
        names = ", ".join(expired)
        decision.note("offsets_expired", f"{len(expired)} offsets past their retention: {names}")
    if group.is_vacant:
        delete_group(decision, "no members and no offsets are left")


def expired_offsets(group: Group, now: int, retention_ms: int) -> list[tuple[str, int]]:
    """Return topic and partition of each offset that is expired at `now`."""
    base = _base_timestamp(group)
    if base is None:
        return []
    return [
        (topic, index)
        for topic, partitions in group.offsets.items()
        if not group.is_subscribed(topic)
        for index, value in partitions.items()
        if _expires_at(value, base, retention_ms) <= now
    ]


def next_expiry(group: Group, config: GroupCoordinatorConfig) -> int | None:
    """Return the time (ms) at which the first offset expires if the group does not change.

    None: no offset expires. A time after `LAST_MS` counts as never, because timers have 64 bits.
    """
    base = _base_timestamp(group)
    if base is None:
        return None
    first = min(
        (
            _expires_at(value, base, config.offsets_retention_ms)
            for topic, partitions in group.offsets.items()
            if not group.is_subscribed(topic)
            for value in partitions.values()
        ),
        default=None,
    )
    return None if first is None or first > LAST_MS else first


def _expires_at(value: OffsetCommitValue, base: BaseTimestamp, retention_ms: int) -> int:
    if value.expire_timestamp != NO_TIMESTAMP:
        return value.expire_timestamp
    return base(value) + retention_ms


def _base_timestamp(group: Group) -> BaseTimestamp | None:
    """Return the function for an offset's base timestamp; None while no offset may expire."""
    if group.protocol_type is None:
        return _committed_at
    if group.state is GroupState.EMPTY:
        emptied_at = group.state_timestamp
        return _committed_at if emptied_at is None else lambda _value: emptied_at
    consumers_known = group.uses_consumer_protocol and group.subscribed_topics is not None
    if consumers_known and group.state is GroupState.STABLE:
        return _committed_at
    return None


def _committed_at(value: OffsetCommitValue) -> int:
    return value.commit_timestamp
