"""A large offsets topic, as a coordinator leaves it that ran for long; made column by column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    OFFSET_COMMIT,
    CoordinatorRecord,
    GroupMetadataValue,
    MemberMetadata,
)
from group_coordinator.schemas.tables import OFFSETS_TOPIC, to_arrow

MEMBERS = 2
# Of ten commits three are superseded by a later one, and one in twenty is a tombstone.
_KEYS_OF_TEN = 7
_TOMBSTONE_EVERY = 20
_PARTITIONS_OF_TOPIC = 10
_CHUNK = 100_000
# The broker's default upper bound: no member of these groups heartbeats, and none is to expire.
_SESSION_MS = 1_800_000
# ConsumerProtocolSubscription version 0 of the topic "t-0", without user data.
_SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x03t-0\x00\x00\x00\x00"


def group_names(groups: int) -> list[str]:
    """Return the ids of the groups that `write_log` makes."""
    return [f"group-{number}" for number in range(groups)]


def write_log(root: str, records: int, groups: int, now: int) -> int:
    """Write `records` rows, the newest at `now`, ms; return the number of committed offsets.

    The last record of every group is its metadata, with members. Raises Failure for fewer than two
    records a group.
    """
    if groups < 1 or records < 2 * groups:
        raise Failure(f"{records} records are too few for {groups} groups")
    handle = ensure_table(root, OFFSETS_TOPIC)
    names = group_names(groups)
    partitions = GroupCoordinatorConfig().offsets_topic_num_partitions
    places = np.array([partition_for(name, partitions) for name in names], np.int32)
    commits = records - groups
    started = now - records
    for segment, rows in enumerate(_commits(names, places, commits, started)):
        column = pa.array(np.full(rows.num_rows, segment))
        write_deltalake(handle, rows.append_column("segment", column), mode="append")
        last = segment
    stored = _group_records(names, places, commits, started)
    segments = {"segment": pa.array(np.full(groups, last))}
    write_deltalake(handle, to_arrow(OFFSETS_TOPIC, stored, segments), mode="append")
    return _in_force(commits)


def _keys(commits: int) -> int:
    return max(1, commits * _KEYS_OF_TEN // 10)


def _in_force(commits: int) -> int:
    """Return the number of keys with a newest record that is not a tombstone."""
    newest = np.arange(commits - _keys(commits), commits)
    return int(np.count_nonzero(newest % _TOMBSTONE_EVERY))


def _commits(
    names: list[str], places: np.ndarray, commits: int, started: int
) -> Iterator[pa.Table]:
    """Yield the commits in the order of the log, without `segment`; the keys take turns."""
    groups = pa.array(names)
    schema = pa.schema(field for field in OFFSETS_TOPIC.schema if field.name != "segment")
    for first in range(0, commits, _CHUNK):
        number = np.arange(first, min(first + _CHUNK, commits))
        key = number % _keys(commits)
        group, place = key % len(names), key // len(names)
        texts = pa.array(number).cast(pa.string())
        alive = number % _TOMBSTONE_EVERY != 0
        given = {
            "partition": pa.array(places[group]),
            "record_type": _same(OFFSET_COMMIT, len(number)),
            "group_id": groups.take(pa.array(group)),
            "timestamp": pa.array(started + number, pa.timestamp("ms", "UTC")),
            "log_offset": pa.array(number),
            "topic": _named("t-", pa.array(place // _PARTITIONS_OF_TOPIC).cast(pa.string())),
            "topic_partition": pa.array((place % _PARTITIONS_OF_TOPIC).astype(np.int32)),
            "offset_commit": _values(number, alive, started),
            "reason": pc.if_else(pa.array(alive), "committed", "deleted by request"),
            "request_id": _named("bench-request-", texts),
        }
        yield pa.Table.from_arrays(
            [
                given[field.name].cast(field.type)
                if field.name in given
                else pa.nulls(len(number), field.type)
                for field in schema
            ],
            schema=schema,
        )


def _same(text: str, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), length)


def _named(prefix: str, texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(prefix, texts, "")


def _values(number: np.ndarray, alive: np.ndarray, started: int) -> pa.Array:
    type_ = OFFSETS_TOPIC.schema.field("offset_commit").type
    length = len(number)
    given = {
        "offset": pa.array(number),
        "leader_epoch": pa.array(np.full(length, NO_LEADER_EPOCH, np.int32)),
        "metadata": _same("", length),
        "commit_timestamp": pa.array(started + number),
        "expire_timestamp": pa.array(np.full(length, NO_TIMESTAMP)),
    }
    columns = [given[field.name].cast(field.type) for field in type_]
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=pa.array(~alive))


def _group_records(
    names: list[str], places: np.ndarray, commits: int, started: int
) -> list[CoordinatorRecord]:
    return [
        CoordinatorRecord(
            partition=int(places[number]),
            record_type=GROUP_METADATA,
            group_id=name,
            timestamp=started + commits + number,
            log_offset=commits + number,
            group_metadata=_stable(name, started + commits + number),
            reason="leader synced",
            request_id=f"bench-sync-{number}",
        )
        for number, name in enumerate(names)
    ]


def _stable(name: str, at: int) -> GroupMetadataValue:
    members = tuple(
        MemberMetadata(
            member_id=f"{name}-member-{number}",
            group_instance_id=None,
            client_id=f"member-{number}",
            client_host="/127.0.0.1",
            rebalance_timeout=_SESSION_MS,
            session_timeout=_SESSION_MS,
            subscription=_SUBSCRIPTION,
            assignment=_SUBSCRIPTION,
        )
        for number in range(MEMBERS)
    )
    return GroupMetadataValue("consumer", 1, "range", members[0].member_id, at, members)
