"""Descriptions of groups from the tables, as kafka-consumer-groups.sh prints them.

Each function runs one query over one snapshot of the tables (`pipeline.monitor.catalog`). The
fields are named as in the views. Committed offsets are read before the ends of their partitions, so
that a commit during the query does not make a lag too small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from group_coordinator.pipeline.monitor.catalog import in_clause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from group_coordinator.pipeline.monitor.catalog import Catalog, Result


# The time within which a committed row is expected to be indexed, s.
_INDEXING_GRACE_S = 10


class ListedGroup(Struct, frozen=True):
    """A group with its state and counts.

    `since` is the time of its last transition of state, and `reason` says why it happened.
    `type` is Classic (KIP-848), or names the group's record types that this release does not know.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str
    protocol: str | None
    generation: int
    num_members: int
    num_offsets: int
    since: Any
    reason: str | None


class PartitionLag(Struct, frozen=True):
    """A group's offset and lag in a partition that it has committed or is assigned, and its member.

    Unknown values are None; the end is known only for a topic with a table. `lag` is 0 if the group
    has committed beyond the end.
    """

    group_id: str
    topic: str
    partition: int
    leader_epoch: int | None
    committed_offset: int | None
    log_end_offset: int | None
    lag: int | None
    member_id: str | None
    client_host: str | None
    client_id: str | None


class MemberSummary(Struct, frozen=True):
    """A member of a group's last stored generation.

    `assignment` has a dictionary for each topic, with its name as `topic` and its `partitions`. It
    and `num_partitions` are None if it is not in the format of Kafka's consumers.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_host: str
    client_id: str
    num_partitions: int | None
    assignment: list[dict[str, Any]] | None


class GroupSummary(Struct, frozen=True):
    """A group's coordinator, assignor (`protocol`), state and size.

    `host`, `port` and `node_id` are None without a coordinator.
    """

    group_id: str
    host: str | None
    port: int | None
    node_id: int | None
    protocol: str | None
    state: str
    generation: int
    num_members: int


def list_groups(catalog: Catalog, states: Sequence[str] = ()) -> list[ListedGroup]:
    """Return all groups, or those in one of the states, ordered by group id."""
    chosen = "WHERE lower(state) IN (SELECT unnest(?))" if states else ""
    query = (
        "SELECT group_id, kind, state, protocol_type, protocol, generation, num_members, "
        f"num_offsets, since, reason FROM groups {chosen} ORDER BY group_id"
    )
    parameters = [[state.lower() for state in states]] if states else []
    return [ListedGroup(*row) for row in catalog.query(query, parameters).rows]


def partition_lags(catalog: Catalog, group_ids: Sequence[str]) -> list[PartitionLag]:
    """Return the partitions of groups, ordered by group, topic, partition and member id."""
    chosen, parameters = in_clause("group_id", group_ids)
    names = ", ".join(f'"{name}"' for name in PartitionLag.__struct_fields__)
    query = (
        f"SELECT {names} FROM group_partitions WHERE {chosen} "
        'ORDER BY group_id, topic, "partition", member_id'
    )
    return [PartitionLag(*row) for row in catalog.query(query, parameters).rows]


def unindexed_topics(
    query: Callable[[str, list[Any]], Result], topics: Iterable[str]
) -> dict[str, datetime]:
    """Return the topics with unindexed rows in their tables, each with the time since when (UTC).

    The known ends of such a topic are too low. Rows committed less than `_INDEXING_GRACE_S` ago do
    not count, because a gateway or member that reads the topic may still index them.
    """
    chosen, parameters = in_clause("topic", sorted(topics))
    sql = f"""
    SELECT topic, min(unindexed_since) FROM topic_ends
    WHERE {chosen} AND unindexed_since < snapshot_time() - to_seconds({_INDEXING_GRACE_S})
    GROUP BY topic ORDER BY topic
    """
    return dict(query(sql, parameters).rows)


def member_summaries(catalog: Catalog, group_ids: Sequence[str]) -> list[MemberSummary]:
    """Return the members of groups, ordered by group id and member id."""
    chosen, parameters = in_clause("group_id", group_ids)
    query = f"""
    SELECT group_id, member_id, group_instance_id, client_host, client_id,
           CASE WHEN assignment IS NOT NULL THEN coalesce(
               list_sum(list_transform(assignment, lambda each: len(each.partitions))), 0
           )::INTEGER END,
           assignment
    FROM group_members WHERE {chosen} ORDER BY group_id, member_id
    """
    return [MemberSummary(*row) for row in catalog.query(query, parameters).rows]


def group_summaries(catalog: Catalog, group_ids: Sequence[str]) -> list[GroupSummary]:
    """Return the states of groups, ordered by group id."""
    chosen, parameters = in_clause("group_id", group_ids)
    names = ", ".join(GroupSummary.__struct_fields__)
    query = f"SELECT {names} FROM group_states WHERE {chosen} ORDER BY group_id"
    return [GroupSummary(*row) for row in catalog.query(query, parameters).rows]
