"""Deletion of the offsets of topics that were deleted from the catalogue.

Source: Apache Kafka, OffsetMetadataManager.onPartitionsDeleted: whatever the group's state and its
members' subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable

from group_coordinator.coordinator.group.turn import Turn
from group_coordinator.schemas.catalogue import Catalogue
from group_coordinator.schemas.errors import ErrorCode

REASON = "topic deleted"


def deleted_since(catalogue: Catalogue, seen_at: int | None) -> set[str]:
    """The topics that were deleted since the group was last decided.

    `seen_at` is the time of the newest deletion that the group was decided under, ms: an offset of
    a topic that was deleted later was committed before that deletion. None: the time is not known,
    as for a group that was loaded from its records. Then a topic that was created again does not
    count, because the offsets may be the new topic's.
    """
    if seen_at is None:
        return catalogue.deleted.keys() - catalogue.partitions.keys()
    return {topic for topic, at in catalogue.deleted.items() if at > seen_at}


def delete_offsets(turn: Turn, topics: Iterable[str]) -> None:
    """Delete every committed offset of these topics."""
    offsets = turn.present.offsets
    deleted = []
    for topic in sorted(topics):
        for index in sorted(offsets.get(topic)):
            # One by one: all of them may exceed max.message.bytes.
            if turn.append(turn.offset_record(topic, index, None, REASON)) is ErrorCode.NONE:
                offsets.drop(topic, index)
                deleted.append(f"{topic}-{index}")
    if deleted:
        names = ", ".join(deleted)
        turn.note("offsets_deleted", f"{len(deleted)} offsets of deleted topics: {names}")
