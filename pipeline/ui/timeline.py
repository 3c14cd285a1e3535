"""A group's events in chapters: each has a rebalance with its cause, events and end."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct, field

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
        row["at"],
        what,
        tone,
        row["member_id"],
        row["reason"],
        row["generation"],
        row["request_id"],
    )
