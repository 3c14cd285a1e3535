"""Plans of changes to a group's committed offsets, which an operator reviews first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import among

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.monitor.catalog import Catalog


class OffsetChange(Struct, frozen=True):
    """One partition's committed offset before and after a change; None means no offset."""

    topic: str
    partition: int
    current: int | None
    wanted: int | None


class GroupPlan(Struct, frozen=True):
    """The changes of one group, in the order of topics and partitions.

    `problem` is the reason why there is no plan for the group; then there are no changes. `notes`
    describe deviations from the operator's request, such as an offset that was limited to the log.
    """

    group_id: str
    changes: tuple[OffsetChange, ...] = ()
    problem: str | None = None
    notes: tuple[str, ...] = ()


class UnknownGroup(Failure):
    """A group that does not exist under the root."""


def known_groups(catalog: Catalog, group_ids: Sequence[str]) -> dict[str, str]:
    """Return the state of each of the groups that exists; without ids, of all groups."""
    chosen, parameters = among("group_id", group_ids) if group_ids else ("true", [])
    query = f"SELECT group_id, state FROM groups WHERE {chosen} ORDER BY group_id"
    return dict(catalog.query(query, parameters).rows)


def check_groups(catalog: Catalog, group_ids: Sequence[str], root: str) -> dict[str, str]:
    """Return the state of each group; raises UnknownGroup for the first that does not exist."""
    known = known_groups(catalog, group_ids)
    for group_id in group_ids:
        if group_id not in known:
            raise UnknownGroup(f"there is no group {group_id!r} under {root}")
    return known


def committed_of(
    catalog: Catalog, group_ids: Sequence[str]
) -> dict[str, dict[tuple[str, int], int]]:
    """Return the committed offsets of each group by (topic, partition)."""
    chosen, parameters = among("group_id", group_ids)
    rows = catalog.query(
        'SELECT group_id, topic, "partition", committed_offset FROM committed_offsets '
        f"WHERE {chosen} ORDER BY ALL",
        parameters,
    ).rows
    found: dict[str, dict[tuple[str, int], int]] = {group_id: {} for group_id in group_ids}
    for group_id, topic, partition, offset in rows:
        found[group_id][topic, partition] = offset
    return found
