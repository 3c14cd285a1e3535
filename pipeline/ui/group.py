"""The data of one group's page."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from group_coordinator.pipeline.admin.descriptions import unindexed_topics
from group_coordinator.pipeline.ui.audit import AuditFilter, AuditPage, list_changes
from group_coordinator.pipeline.ui.lag import LagHistory, Trend, read_lag_history, trend
from group_coordinator.pipeline.ui.timeline import Chapter, split_into_chapters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from group_coordinator.pipeline.ui.root_snapshot import RootSnapshot

# A page shows the newest of each kind, up to these numbers.
_EVENTS = 1000
_CHAPTERS = 40
_COMMITS = 20
_CHANGES = 20
# The most partitions that a page lists.
PARTITIONS = 500
_CHART = (720, 140)
_SPARK = (110, 22)


class ShownMember(Struct, frozen=True):
    """A member of the last stored generation; `holds` is topic -> partitions, None if unknown."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    is_leader: bool
    session_timeout_ms: int
    rebalance_timeout_ms: int
    holds: dict[str, list[int]] | None

    @property
    def partitions(self) -> int | None:
        """The number of assigned partitions; None if unknown."""
        return None if self.holds is None else sum(map(len, self.holds.values()))


class Partition(Struct, frozen=True):
    """A partition with a committed offset; `owner` is the client id of its assigned member."""

    topic: str
    partition: int
    committed_offset: int
    log_end_offset: int | None
    lag: int | None
    lag_seconds: float | None
    verdict: str | None
    reason: str
    last_commit_at: datetime | None
    owner: str | None
    trend: Trend | None


class GroupPage(Struct, frozen=True):
    """One group; `head` is its row in the list, None if the group no longer exists.

    `coordinator` is the node that decides the group's requests, if any. `unindexed` maps topics to
    a time (UTC), since when rows of their tables are not in the end offset.
    """

    group_id: str
    head: dict[str, Any] | None
    members: list[ShownMember]
    partitions: list[Partition]
    partition_count: int
    coordinator: str | None
    unindexed: dict[str, datetime]
    lag_trend: Trend | None
    chapters: list[Chapter]
    commits: list[dict[str, Any]]
    changes: AuditPage

    @property
    def verdict_reason(self) -> str | None:
        """The reason of the partition with the group's verdict and the largest lag."""
        verdict = None if self.head is None else self.head["verdict"]
        return next((p.reason for p in self.partitions if p.verdict == verdict), None)

    @property
    def without_end(self) -> list[str]:
        """The topics with an unknown end offset."""
        return sorted({each.topic for each in self.partitions if each.log_end_offset is None})

    @property
    def is_known(self) -> bool:
        """Whether the group exists, or a table still has rows of it."""
        return bool(self.head or self.chapters or self.commits or self.changes.rows)


def read_group(snapshot: RootSnapshot, group_id: str) -> GroupPage:
    """Read the data of a group from the tables. Raises QueryError."""
    heads = snapshot.rows("SELECT * FROM group_overview WHERE group_id = ?", group_id)
    members = _members(snapshot, group_id)
    lags = snapshot.rows(
        'SELECT * FROM verdicts WHERE group_id = ? ORDER BY lag DESC NULLS LAST, topic, "partition"'
        " LIMIT ?",
        group_id,
        PARTITIONS,
    )
    events = snapshot.rows(
        'SELECT * FROM (SELECT * FROM group_events WHERE group_id = ? ORDER BY "at" DESC LIMIT ?) '
        'ORDER BY "at"',
        group_id,
        _EVENTS,
    )
    unindexed = unindexed_topics(
        lambda sql, values: snapshot.query(sql, *values), {row["topic"] for row in lags}
    )
    history = read_lag_history(snapshot, group_id, unindexed)
    return GroupPage(
        group_id=group_id,
        head=heads[0] if heads else None,
        members=members,
        partitions=_partitions(lags, members, history),
        partition_count=heads[0]["partitions"] if heads else 0,
        coordinator=_coordinator(snapshot, group_id),
        unindexed=unindexed,
        lag_trend=trend(history.of_all, *_CHART),
        chapters=split_into_chapters(events)[:_CHAPTERS],
        commits=snapshot.rows(
            "SELECT * FROM offset_history WHERE group_id = ? ORDER BY written_at DESC, "
            "log_offset DESC LIMIT ?",
            group_id,
            _COMMITS,
        ),
        changes=list_changes(snapshot, AuditFilter(group=group_id), _CHANGES),
    )


def _coordinator(snapshot: RootSnapshot, group_id: str) -> str | None:
    rows = snapshot.query(
        "SELECT node_id, host, port FROM group_coordinators WHERE group_id = ?", group_id
    ).rows
    return f"node {rows[0][0]} at {rows[0][1]}:{rows[0][2]}" if rows else None


def _members(snapshot: RootSnapshot, group_id: str) -> list[ShownMember]:
    rows = snapshot.rows(
        "SELECT * FROM group_members WHERE group_id = ? ORDER BY is_leader DESC, client_id, "
        "member_id",
        group_id,
    )
    return [
        ShownMember(
            holds=_holds(row["assignment"]),
            **{name: row[name] for name in ShownMember.__struct_fields__ if name != "holds"},
        )
        for row in rows
    ]


def _holds(assignment: Iterable[dict[str, Any]] | None) -> dict[str, list[int]] | None:
    if assignment is None:
        return None
    return {each["topic"]: sorted(each["partitions"]) for each in assignment}


def _partitions(
    rows: Iterable[dict[str, Any]], members: Iterable[ShownMember], history: LagHistory
) -> list[Partition]:
    owners = {
        (topic, number): member.client_id
        for member in members
        for topic, numbers in (member.holds or {}).items()
        for number in numbers
    }
    return [
        Partition(
            owner=owners.get((row["topic"], row["partition"])),
            trend=trend(history.of_partitions.get((row["topic"], row["partition"]), ()), *_SPARK),
            **{
                name: row[name]
                for name in Partition.__struct_fields__
                if name not in ("owner", "trend")
            },
        )
        for row in rows
    ]
