"""Plans from the history of offsets: undo, return to a time, copy, deletion, and comparison.

The history is retained for `offsets_history.retention.ms`. A partition is not changed if the
history has no offset of it at a time, because a commit may have expired.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.pipeline.admin.changes import RESET_PREFIX
from group_coordinator.pipeline.admin.plans import (
    GroupPlan,
    OffsetChange,
    check_groups,
    committed_offsets_of,
    parse_scope,
    partition_counts,
    partitions_of,
)
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.settings import UpkeepSettings

if TYPE_CHECKING:
    from collections.abc import Sequence


class Difference(Struct, frozen=True):
    """A partition's committed offsets at two times, and their difference; None if unknown."""

    topic: str
    partition: int
    earlier: int | None
    later: int | None
    moved: int | None


def plan_undo(root: str, group_id: str) -> GroupPlan:
    """Return the plan to undo the last change of the group's offsets by an operator.

    Such a change is a reset, a return to a time, a copy, a deletion of offsets, or an undo. A
    partition without an offset before the change loses its offset, unless the change is older than
    the history's retention, because an earlier commit may have expired. Raises Failure if there is
    no such change.
    """
    rows = (
        Catalog(root)
        .query(
            # Ordered by log offset, which does not depend on clocks.
            """
            WITH changes AS (
                SELECT *, split_part(request_id, '/', 2) AS change_id FROM offset_history
                WHERE group_id = ? AND starts_with(request_id, ?)
            ),
            last AS (SELECT change_id FROM changes ORDER BY log_offset DESC LIMIT 1)
            SELECT changes.topic, changes."partition", now.committed_offset,
                   changes.previous_offset, epoch_ms(changes.written_at)
            FROM changes JOIN last USING (change_id)
            LEFT JOIN committed_offsets AS now ON now.group_id = changes.group_id
            AND now.topic = changes.topic AND now."partition" = changes."partition"
            ORDER BY ALL
            """,
            [group_id, RESET_PREFIX],
        )
        .rows
    )
    if not rows:
        raise Failure(
            f"group {group_id!r} has no change by an operator to undo; to undo changes of another "
            "tool, go back to the offsets of a time (`offsets undo --to`)"
        )
    changes, notes = [], []
    known_since = clock_ms() - UpkeepSettings().offsets_history_retention_ms
    for topic, partition, now, before, changed_at in rows:
        if before is None and changed_at < known_since:
            notes.append(_unchanged_note(topic, partition, now))
        elif now != before:
            changes.append(OffsetChange(topic, partition, now, before))
    return GroupPlan(group_id, tuple(changes), notes=tuple(notes))


def plan_return(root: str, group_id: str, to_ms: int) -> GroupPlan:
    """Return the plan to set a group's offsets to those of a time (ms since 1970).

    Raises Failure if no offset of the group is known at that time.
    """
    catalog = Catalog(root)
    then = _as_of(catalog, group_id, to_ms)
    if not then:
        time = _utc(to_ms).isoformat(timespec="milliseconds")
        raise Failure(
            f"no offsets of group {group_id!r} at {time} are known: it had none, or "
            "the time is further back than offsets_history.retention.ms"
        )
    now = committed_offsets_of(catalog, [group_id])[group_id]
    places = sorted(then)
    changes = tuple(
        OffsetChange(*at, now.get(at), then[at]) for at in places if now.get(at) != then[at]
    )
    unknown = sorted(now.keys() - then.keys())
    return GroupPlan(
        group_id, changes, notes=tuple(_unchanged_note(*at, now[at]) for at in unknown)
    )


def plan_clone(root: str, group_id: str, to_group: str, topics: Sequence[str]) -> GroupPlan:
    """Return the plan to copy the committed offsets of `group_id` to `to_group`.

    `topics` are in the format of `parse_scope`; none means all. `to_group` may be new; its offsets
    of other partitions stay. Raises UnknownGroup for an unknown source, Failure if the groups are
    the same, a topic is wrong, or the source has no such offsets.
    """
    catalog = Catalog(root)
    if to_group == group_id:
        raise Failure(f"group {group_id!r} cannot be copied to itself")
    check_groups(catalog, [group_id], root)
    committed = committed_offsets_of(catalog, [group_id, to_group])
    source, now = committed[group_id], committed[to_group]
    scopes = [parse_scope(each) for each in topics]
    counts = partition_counts(catalog, {scope.topic for scope in scopes})
    places = [at for at in partitions_of(scopes, source, counts) if at in source]
    if not places:
        raise Failure(f"group {group_id!r} has no such committed offsets to copy")
    return GroupPlan(to_group, tuple(OffsetChange(*at, now.get(at), source[at]) for at in places))


def plan_deletions(root: str, group_ids: Sequence[str], topics: Sequence[str]) -> list[GroupPlan]:
    """Return the plans to delete committed offsets of the topics; without topics, all offsets.

    A group without such offsets has a `problem` in its plan. Raises UnknownGroup.
    """
    catalog = Catalog(root)
    check_groups(catalog, group_ids, root)
    scopes = [parse_scope(each) for each in topics]
    counts = partition_counts(catalog, {scope.topic for scope in scopes})
    plans = []
    for group_id, committed in committed_offsets_of(catalog, group_ids).items():
        known = {topic for topic, _ in committed}
        wanted = [each for each in scopes if each.partitions or each.topic in known]
        places = partitions_of(wanted, committed, counts) if wanted or not scopes else []
        changes = tuple(OffsetChange(*at, committed[at], None) for at in places if at in committed)
        if changes:
            plans.append(GroupPlan(group_id, changes))
        else:
            of = f" of {', '.join(topics)}" if topics else ""
            plans.append(GroupPlan(group_id, problem=f"it has no committed offsets{of}"))
    return plans


def differences(root: str, group_id: str, from_ms: int, to_ms: int) -> list[Difference]:
    """Return the group's offsets at two times (ms since 1970) and their differences.

    A partition is included if its offset is known at one of the times. Raises Failure if none is.
    """
    catalog = Catalog(root)
    earlier = _as_of(catalog, group_id, from_ms)
    later = _as_of(catalog, group_id, to_ms)
    if not earlier and not later:
        raise Failure(f"no offsets of group {group_id!r} are known at either time")
    return [
        Difference(*at, earlier.get(at), later.get(at), _between(earlier.get(at), later.get(at)))
        for at in sorted(earlier.keys() | later.keys())
    ]


def _unchanged_note(topic: str, partition: int, now: int | None) -> str:
    stays = "without an offset" if now is None else f"at {now}"
    return f"partition {partition} of topic {topic!r} stays {stays}: no earlier offset is known"


def _between(earlier: int | None, later: int | None) -> int | None:
    return None if earlier is None or later is None else later - earlier


def _as_of(catalog: Catalog, group_id: str, at_ms: int) -> dict[tuple[str, int], int]:
    query = (
        'SELECT topic, "partition", committed_offset FROM offsets_as_of(?::TIMESTAMP) '
        "WHERE group_id = ?"
    )
    rows = catalog.query(query, [_utc(at_ms), group_id]).rows
    return {(topic, partition): offset for topic, partition, offset in rows}


def _utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC).replace(tzinfo=None)
