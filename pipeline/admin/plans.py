"""Plans of changes to a group's committed offsets, and the partitions to which they apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import in_clause

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from group_coordinator.pipeline.monitor.catalog import Catalog


class OffsetChange(Struct, frozen=True):
    """A partition's committed offset before and after a change, None without an offset."""

    topic: str
    partition: int
    current: int | None
    wanted: int | None


class GroupPlan(Struct, frozen=True):
    """The changes of one group, in the order of topics and partitions.

    `problem` says why there is no plan for the group; then there are no changes. `notes` describe
    deviations from the operator's request, such as an offset limited to the log.
    """

    group_id: str
    changes: tuple[OffsetChange, ...] = ()
    problem: str | None = None
    notes: tuple[str, ...] = ()


class UnknownGroup(Failure):
    """A group does not exist under the root."""


def group_states(catalog: Catalog, group_ids: Sequence[str]) -> dict[str, str]:
    """Return the state of each existing group of `group_ids`, or of all groups without ids."""
    chosen, parameters = in_clause("group_id", group_ids) if group_ids else ("true", [])
    query = f"SELECT group_id, state FROM groups WHERE {chosen} ORDER BY group_id"
    return dict(catalog.query(query, parameters).rows)


def check_groups(catalog: Catalog, group_ids: Sequence[str], root: str) -> dict[str, str]:
    """Return the state of each group; raises UnknownGroup for the first that does not exist."""
    known = group_states(catalog, group_ids)
    for group_id in group_ids:
        if group_id not in known:
            raise UnknownGroup(f"there is no group {group_id!r} under {root}")
    return known


def committed_offsets_of(
    catalog: Catalog, group_ids: Sequence[str]
) -> dict[str, dict[tuple[str, int], int]]:
    """Return the committed offsets of each group by (topic, partition)."""
    chosen, parameters = in_clause("group_id", group_ids)
    rows = catalog.query(
        'SELECT group_id, topic, "partition", committed_offset FROM committed_offsets '
        f"WHERE {chosen} ORDER BY ALL",
        parameters,
    ).rows
    found: dict[str, dict[tuple[str, int], int]] = {group_id: {} for group_id in group_ids}
    for group_id, topic, partition, offset in rows:
        found[group_id][topic, partition] = offset
    return found


class TopicScope(Struct, frozen=True):
    """A topic, or some of its partitions; None means all."""

    topic: str
    partitions: tuple[int, ...] | None = None


def parse_scope(text: str) -> TopicScope:
    """Return the scope that is written as `TOPIC` or `TOPIC:0,2`. Raises Failure."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return TopicScope(topic)
    try:
        partitions = tuple(sorted({int(each) for each in numbers.split(",")}))
    except ValueError:
        partitions = ()
    if not topic or not partitions or partitions[0] < 0:
        raise Failure(f"{text!r} is not a topic such as orders, or orders:0,2 for some partitions")
    return TopicScope(topic, partitions)


def partition_counts(catalog: Catalog, topics: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions of each of the topics that is in the catalogue."""
    chosen, parameters = in_clause("topic", list(topics))
    query = f"SELECT topic, partitions FROM topics WHERE {chosen}"
    return dict(catalog.query(query, parameters).rows)


def partitions_of(
    scopes: Iterable[TopicScope],
    committed: Collection[tuple[str, int]],
    counts: Mapping[str, int],
) -> list[tuple[str, int]]:
    """Return the (topic, partition) pairs of the scopes, sorted; without scopes, all committed.

    A whole topic has the partitions of the catalogue or, if it is not there, the committed ones.
    Raises Failure for a partition that a topic does not have, and for a whole topic that is neither
    in the catalogue nor committed.
    """
    found = set(committed) if not (scopes := list(scopes)) else set()
    for scope in scopes:
        count = counts.get(scope.topic)
        mine = {each for each in committed if each[0] == scope.topic}
        if scope.partitions is not None:
            beyond = [each for each in scope.partitions if count is not None and each >= count]
            if beyond:
                raise Failure(f"topic {scope.topic!r} has no partition {beyond[0]}: it has {count}")
            mine = {(scope.topic, each) for each in scope.partitions}
        elif count is not None:
            mine = {(scope.topic, each) for each in range(count)}
        elif not mine:
            raise Failure(
                f"the number of partitions of topic {scope.topic!r} is unknown, and the group has "
                f"no offsets of it: name the partitions, as in {scope.topic}:0,1,2"
            )
        found |= mine
    return sorted(found)
