"""Plans: what would change in a group's committed offsets, for people to look at first."""

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

    `problem` says why there is no plan for the group; it has no changes then. `notes` are what the
    operator did not ask for in so many words, such as an offset that was brought within the log.
    """

    group_id: str
    changes: tuple[OffsetChange, ...] = ()
    problem: str | None = None
    notes: tuple[str, ...] = ()


class UnknownGroup(Failure):
    """There is no such group under the root."""


def known_groups(catalog: Catalog, group_ids: Sequence[str]) -> dict[str, str]:
    """Return the state of each of the groups that exists; of every group if none is named."""
    chosen, parameters = among("group_id", group_ids) if group_ids else ("true", [])
    query = f"SELECT group_id, state FROM groups WHERE {chosen} ORDER BY group_id"
    return dict(catalog.query(query, parameters).rows)


def check_groups(catalog: Catalog, group_ids: Sequence[str], root: str) -> dict[str, str]:
    """Return the state of each of the groups. Raises UnknownGroup for the first one without one."""
    known = known_groups(catalog, group_ids)
    for group_id in group_ids:
        if group_id not in known:
            raise UnknownGroup(f"there is no group {group_id!r} under {root}")
    return known


def committed_of(
    catalog: Catalog, group_ids: Sequence[str]
) -> dict[str, dict[tuple[str, int], int]]:
    """Return the committed offset of each (topic, partition) of each of the groups."""
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
