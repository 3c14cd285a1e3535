"""Changes of groups and their offsets: what they would be, and carrying them out.

Nothing here writes the coordinator's own tables: a deletion or a reset is a request event, and the
coordinator decides whether the group's state allows it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from pipeline.clock import clock_ms
from pipeline.errors import Failure
from pipeline.monitor.catalog import Catalog
from pipeline.tables.request_log import RequestLog
from pipeline.tables.topics import delete_topic as delete_from_catalogue
from schemas.errors import ERROR_NAMES
from schemas.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    RequestEvent,
)

RESET_PREFIX = "offsets-reset/"
_HINTS = {
    "UNKNOWN_MEMBER_ID": "the group has members; stop them first",
    "NON_EMPTY_GROUP": "the group has members; stop them first",
    "GROUP_SUBSCRIBED_TO_TOPIC": "members of the group consume the topic; stop them first",
    "GROUP_ID_NOT_FOUND": "there is no such group",
    "REQUEST_TIMED_OUT": "it was too late to decide it; nothing was changed",
}


class Change(Struct, frozen=True):
    """One partition's committed offset before and after a change; None means no offset."""

    topic: str
    partition: int
    current: int | None
    wanted: int | None


def delete_group(root: str, group_id: str, timeout_s: float = 30.0) -> None:
    """Delete an Empty group with its offsets; raises Failure with the coordinator's reason."""
    from pipeline.admin.requesting import ask

    request = _request(group_id, "delete_groups", delete_groups=DeleteGroupsRequest())
    (answer,) = ask(root, [request], timeout_s)
    _refuse(group_id, [answer.error_code])


def delete_topic(root: str, name: str) -> int:
    """Delete a topic and, as Kafka does, the offsets committed for it. Raises UnknownTopic.

    Returns how many groups have such offsets. A coordinator deletes them before it decides a
    group's next request, so each of these groups is sent a DescribeGroups, which waits while no
    coordinator runs.
    """
    delete_from_catalogue(root, name)
    query = "SELECT DISTINCT group_id FROM committed_offsets WHERE topic = ? ORDER BY ALL"
    body = DescribeGroupsRequest()
    requests = [
        _request(group_id, "describe_groups", describe_groups=body)
        for (group_id,) in Catalog(root).query(query, [name]).rows
    ]
    if requests:
        RequestLog(root).append(requests)
    return len(requests)


def plan_reset(
    root: str, group_id: str, topics: Sequence[str], to_offset: int | None, shift_by: int | None
) -> list[Change]:
    """Return what a reset to an offset, or by a number of offsets, would change. Raises Failure."""
    if (to_offset is None) == (shift_by is None):
        raise Failure("say either an offset to go to, or a number of offsets to shift by")
    changes = []
    for topic, partition, current in _committed(root, group_id, topics):
        wanted = to_offset if to_offset is not None else max(0, current + (shift_by or 0))
        if wanted != current:
            changes.append(Change(topic, partition, current, wanted))
    return changes


def plan_deletion(root: str, group_id: str, topics: Sequence[str]) -> list[Change]:
    """Return what deleting the offsets of these topics would change. Raises Failure."""
    return [Change(t, p, current, None) for t, p, current in _committed(root, group_id, topics)]


def plan_undo(root: str, group_id: str) -> list[Change]:
    """Return what undoing the group's last reset would change. Raises Failure without one."""
    rows = (
        Catalog(root)
        .query(
            "WITH resets AS (SELECT *, max(written_at) OVER () AS latest FROM offset_history "
            "WHERE group_id = ? AND starts_with(request_id, ?)) "
            'SELECT resets.topic, resets."partition", now.committed_offset, resets.previous_offset '
            "FROM resets JOIN committed_offsets AS now ON now.group_id = resets.group_id "
            'AND now.topic = resets.topic AND now."partition" = resets."partition" '
            "WHERE written_at = latest ORDER BY ALL",
            [group_id, RESET_PREFIX],
        )
        .rows
    )
    if not rows:
        raise Failure(f"group {group_id!r} has no reset to undo")
    return [Change(*row) for row in rows if row[2] != row[3] and row[3] is not None]


def carry_out(root: str, group_id: str, changes: Sequence[Change], timeout_s: float = 30.0) -> None:
    """Make the changes; raises Failure with the coordinator's reason if it refuses any."""
    from pipeline.admin.requesting import ask

    requests = [_request(group_id, api, **{api: asked}) for api, asked in _bodies(changes)]
    for answer in ask(root, requests, timeout_s):
        body = getattr(answer, answer.api)
        topics = () if body is None else body.topics
        codes = [partition.error_code for topic in topics for partition in topic.partitions]
        _refuse(group_id, codes or [answer.error_code])


def _bodies(changes: Sequence[Change]) -> Iterable[tuple[str, Struct]]:
    names = sorted({change.topic for change in changes})
    kept = [change for change in changes if change.wanted is not None]
    if kept:
        topics = tuple(
            OffsetCommitTopic(
                name,
                tuple(
                    OffsetCommitPartition(change.partition, change.wanted or 0)
                    for change in kept
                    if change.topic == name
                ),
            )
            for name in names
        )
        yield "offset_commit", OffsetCommitRequest(topics=topics)
    gone = [change for change in changes if change.wanted is None]
    if gone:
        deleted = tuple(
            OffsetDeleteTopic(name, tuple(c.partition for c in gone if c.topic == name))
            for name in names
        )
        yield "offset_delete", OffsetDeleteRequest(deleted)


def _committed(root: str, group_id: str, topics: Sequence[str]) -> list[tuple[str, int, int]]:
    rows = (
        Catalog(root)
        .query(
            'SELECT topic, "partition", committed_offset FROM committed_offsets '
            "WHERE group_id = ? ORDER BY ALL",
            [group_id],
        )
        .rows
    )
    found = [(t, p, offset) for t, p, offset in rows if not topics or t in topics]
    if not found:
        of = f" of {', '.join(topics)}" if topics else ""
        raise Failure(f"group {group_id!r} has no committed offsets{of} under {root}")
    return found


def _request(group_id: str, api: str, **body: Any) -> RequestEvent:
    prefix = RESET_PREFIX if api == "offset_commit" else "admin/"
    return RequestEvent(
        request_id=f"{prefix}{uuid.uuid4()}",
        group_id=group_id,
        api=api,
        client_id="group-coordinator",
        sent_at=clock_ms(),
        **body,
    )


def _refuse(group_id: str, codes: Iterable[int]) -> None:
    errors = sorted({ERROR_NAMES[code] for code in codes if code})
    if errors:
        hints = "; ".join(_HINTS[name] for name in errors if name in _HINTS)
        why = f" ({hints})" if hints else ""
        raise Failure(f"group {group_id!r}: the coordinator answered {', '.join(errors)}{why}")
