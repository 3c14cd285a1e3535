"""What the tables tell of groups, as kafka-consumer-groups.sh does; named as in the views.

Each function is one query over one state of the tables (`pipeline.monitor.catalog`): committed
offsets are read before the ends of their partitions, so that no lag is negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from group_coordinator.pipeline.monitor.catalog import among

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from group_coordinator.pipeline.monitor.catalog import Catalog, Result

# How long after its commit a row may be indexed before somebody is told, s.
_INDEXED_S = 10


class ListedGroup(Struct, frozen=True):
    """A group, its state and its numbers; `since` and `reason` are of its last transition.

    `type` is Classic, as KIP-848 calls it, or the kinds of records that this release does not know.
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
    """Where a group stands in a partition, and the member that has it; None for what is not known.

    A partition is here if it was committed, or is assigned to a member. Only a topic that is a
    table has a known end. `lag` is never negative: a group may have committed beyond the end.
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

    `assignment`: a dictionary of each topic, its name as `topic` and its `partitions`.

    `num_partitions` and `assignment` are None if the assignment is not of Kafka's consumers.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_host: str
    client_id: str
    num_partitions: int | None
    assignment: list[dict[str, Any]] | None


class GroupSummary(Struct, frozen=True):
    """A group's coordinator, assignor, state and size; `node_id` None: nobody coordinates it."""

    group_id: str
    host: str | None
    port: int | None
    node_id: int | None
    protocol: str | None
    state: str
    generation: int
    num_members: int


def list_groups(catalog: Catalog, states: Sequence[str] = ()) -> list[ListedGroup]:
    """Return every group, or those in one of the states, by group id."""
    chosen = "WHERE lower(state) IN (SELECT unnest(?))" if states else ""
    query = (
        "SELECT group_id, kind, state, protocol_type, protocol, generation, num_members, "
        f"num_offsets, since, reason FROM groups {chosen} ORDER BY group_id"
    )
    parameters = [[state.lower() for state in states]] if states else []
    return [ListedGroup(*row) for row in catalog.query(query, parameters).rows]


def partition_lags(catalog: Catalog, group_ids: Sequence[str]) -> list[PartitionLag]:
    """Return the partitions of groups in order."""
    chosen, parameters = among("group_id", group_ids)
    names = ", ".join(f'"{name}"' for name in PartitionLag.__struct_fields__)
    query = (
        f"SELECT {names} FROM group_partitions WHERE {chosen} "
        'ORDER BY group_id, topic, "partition", member_id'
    )
    return [PartitionLag(*row) for row in catalog.query(query, parameters).rows]


def unindexed_topics(
    query: Callable[[str, list[Any]], Result], topics: Iterable[str]
) -> dict[str, datetime]:
    """Return those of the topics whose tables have rows beyond the known ends, since when (UTC).

    A gateway or a member that reads a topic is allowed some seconds to index what is new.
    """
    chosen, parameters = among("topic", sorted(topics))
    sql = f"""
    SELECT topic, min(unindexed_since) FROM topic_ends
    WHERE {chosen} AND unindexed_since < snapshot_time() - to_seconds({_INDEXED_S})
    GROUP BY topic ORDER BY topic
    """
    return dict(query(sql, parameters).rows)


def members_of(catalog: Catalog, group_ids: Sequence[str]) -> list[MemberSummary]:
    """Return the members of groups, by group and member id."""
    chosen, parameters = among("group_id", group_ids)
    query = f"""
    SELECT group_id, member_id, group_instance_id, client_host, client_id,
           CASE WHEN assignment IS NOT NULL THEN coalesce(
               list_sum(list_transform(assignment, lambda each: len(each.partitions))), 0
           )::INTEGER END,
           assignment
    FROM group_members WHERE {chosen} ORDER BY group_id, member_id
    """
    return [MemberSummary(*row) for row in catalog.query(query, parameters).rows]


def states_of(catalog: Catalog, group_ids: Sequence[str]) -> list[GroupSummary]:
    """Return the states of groups, by group id."""
    chosen, parameters = among("group_id", group_ids)
    names = ", ".join(GroupSummary.__struct_fields__)
    query = f"SELECT {names} FROM group_states WHERE {chosen} ORDER BY group_id"
    return [GroupSummary(*row) for row in catalog.query(query, parameters).rows]
