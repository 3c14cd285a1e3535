"""The data of one group's page, with its rebalances as chapters."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from group_coordinator.pipeline.admin.descriptions import unindexed_topics
from group_coordinator.pipeline.ui.audit import AuditFilter, AuditPage, list_changes
from group_coordinator.pipeline.ui.lag import LagHistory, Trend, read_lag_history, trend

if TYPE_CHECKING:
    from group_coordinator.pipeline.ui.root_snapshot import RootSnapshot

_BEGINS = "PreparingRebalance"
_ENDS = ("Stable", "Empty", "Dead")
# The events in words. An event of a later release is shown by its name.
WORDS = {
    "member_joined": "member joined",
    "member_left": "member left",
    "member_expired": "member expired",
    "leader_elected": "leader elected",
    "offsets_expired": "offsets expired",
    "offsets_deleted": "offsets deleted",
    "group_deleted": "group deleted",
    "loaded": "loaded by a coordinator",
    "unloaded": "given to another coordinator",
    "handler_failed": "coordinator failed",
    "requests_refused": "requests refused",
}
_TONES = {
    "member_joined": "ok",
    "member_left": "warn",
    "member_expired": "bad",
    "handler_failed": "bad",
    "requests_refused": "bad",
    "group_deleted": "warn",
    "offsets_deleted": "warn",
    "offsets_expired": "warn",
}


class Event(Struct, frozen=True):
    """A row of `group_events`; `what` is its description, `tone` is ok, warn, bad or empty."""

    at: datetime
    what: str
    tone: str
    member: str | None
    reason: str | None
    generation: int | None
    request_id: str | None


class Chapter(Struct):
    """A rebalance with the events that caused it and followed it.

    The first chapter can have events before the first known rebalance. `ended_at` and `state` are
    None during the rebalance.
    """

    began_at: datetime
    is_rebalance: bool
    reason: str | None = None
    generation: int | None = None
    ended_at: datetime | None = None
    state: str | None = None
    events: list[Event] = field(default_factory=list)

    @property
    def ms(self) -> int | None:
        """The duration of the rebalance, ms; None before its end and for other chapters."""
        if self.ended_at is None or not self.is_rebalance:
            return None
        return round((self.ended_at - self.began_at).total_seconds() * 1000)


def split_into_chapters(rows: Iterable[dict[str, Any]]) -> list[Chapter]:
    """Divide rows of `group_events`, in their order, into chapters; return the newest first.

    An event in the millisecond in which a rebalance begins counts as its cause, because a
    coordinator records a cause, such as a member that left, before the transition.
    """
    chapters: list[Chapter] = []
    for row in rows:
        event = _event(row)
        if row["event"] == "transition" and row["to_state"] == _BEGINS:
            causes = _causes(chapters, event.at)
            chapters.append(Chapter(event.at, True, row["reason"], events=causes))
        elif not chapters:
            chapters.append(Chapter(event.at, False))
        chapter = chapters[-1]
        chapter.events.append(event)
        if row["generation"] is not None:
            chapter.generation = row["generation"]
        if row["event"] == "transition":
            ended = row["to_state"] in _ENDS
            chapter.state = row["to_state"] if ended else None
            chapter.ended_at = event.at if ended else None
    return [chapter for chapter in reversed(chapters) if chapter.events]


def _causes(chapters: list[Chapter], at: datetime) -> list[Event]:
    """Remove the events of this millisecond from the end of the last chapter and return them."""
    if not chapters:
        return []
    events = chapters[-1].events
    first = len(events)
    while first and _millisecond(events[first - 1].at) == _millisecond(at):
        if events[first - 1].what.startswith("state "):
            break
        first -= 1
    causes = events[first:]
    del events[first:]
    return causes


def _millisecond(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _event(row: dict[str, Any]) -> Event:
    name = row["event"]
    if name == "transition":
        what, tone = f"state {row['to_state']}", "ok" if row["to_state"] == "Stable" else ""
    else:
        what, tone = WORDS.get(name, name), _TONES.get(name, "")
    return Event(
        row["changed_at"],
        what,
        tone,
        row["member_id"],
        row["reason"],
        row["generation"],
        row["request_id"],
    )


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
        "SELECT * FROM (SELECT * FROM group_events WHERE group_id = ? "
        "ORDER BY changed_at DESC LIMIT ?) ORDER BY changed_at",
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
