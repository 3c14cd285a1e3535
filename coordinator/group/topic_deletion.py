"""Deletion of the offsets of topics that were deleted from the catalogue.

They are deleted whatever the group's state and its members' subscriptions are. Source: Apache
Kafka, OffsetMetadataManager.onPartitionsDeleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.schemas.catalogue import Catalogue
from group_coordinator.schemas.errors import ErrorCode

REASON = "topic deleted"


def deleted_since(catalogue: Catalogue, seen_at: int | None) -> set[str]:
    """Return the topics that were deleted since the group's last decision.

    `seen_at` (ms) is the time of the newest deletion that was applied to the group: offsets of a
    topic that was deleted later were committed before its deletion. None: the time is unknown, as
    for a group that was loaded from its records. Then a topic that was created again is left out,
    because the offsets may belong to the new topic.
    """
    if seen_at is None:
        return catalogue.deleted.keys() - catalogue.partitions.keys()
    return {topic for topic, at in catalogue.deleted.items() if at > seen_at}


def delete_offsets(decision: Decision, topics: Iterable[str]) -> None:
    """Delete all committed offsets of these topics."""
    offsets = decision.present.offsets
    deleted = []
    for topic in sorted(topics):
        for index in sorted(offsets.get(topic)):
            # One by one: together they may exceed max.message.bytes.
            if (
                decision.append(decision.offset_record(topic, index, None, REASON))
                is ErrorCode.NONE
            ):
                offsets.drop(topic, index)
                deleted.append(f"{topic}-{index}")
    if deleted:
        names = ", ".join(deleted)
        decision.note("offsets_deleted", f"{len(deleted)} offsets of deleted topics: {names}")
