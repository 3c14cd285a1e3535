"""Resets: where a group's committed offsets would go, for each of Kafka's eight aims.

As Kafka does it: a wanted offset outside of a partition's log is brought within it, and that is
told; to-current and to-datetime go to the end where there is no such offset; shift-by needs one.
The ends of a log are those of the topic's index (view `topic_ends`). Of a topic that is no table
they are not known: it can be reset to an offset, or shifted, as far as 0.
Source: Apache Kafka 4.1, ConsumerGroupCommand.resetOffsets and OffsetsUtils.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.pipeline.admin.plans import (
    GroupPlan,
    OffsetChange,
    committed_of,
    known_groups,
)
from group_coordinator.pipeline.admin.scope import (
    TopicScope,
    parse_scope,
    partition_counts,
    partitions_of,
)
from group_coordinator.pipeline.admin.times import parse_duration, parse_time
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import Failure, WrongCall
from group_coordinator.pipeline.monitor.catalog import Catalog, among

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# The aims under Kafka's names, and what value each needs, in a word; none if empty.
AIMS = {
    "to-earliest": "",
    "to-latest": "",
    "to-current": "",
    "to-offset": "offset",
    "shift-by": "number",
    "to-datetime": "time",
    "by-duration": "duration",
}
# In these states a group has no member whose commits would go on.
_INACTIVE = ("Empty", "Dead")


class Aim(Struct, frozen=True):
    """Where to go: one of `AIMS`, with its value as an offset, a number, or ms since 1970."""

    name: str
    value: int = 0


def parse_aim(name: str, text: str = "") -> Aim:
    """Read an aim and its value as they are written. Raises Failure, WrongCall of a number."""
    kind = AIMS.get(name)
    if kind is None:
        raise Failure(f"{name!r} is none of {', '.join(AIMS)}")
    if kind == "time":
        return Aim(name, parse_time(text))
    if kind == "duration":
        return Aim(name, clock_ms() - parse_duration(text))
    if not kind:
        return Aim(name)
    try:
        value = int(text)
    except ValueError as error:
        raise WrongCall(f"{text!r} is no whole number") from error
    if name == "to-offset" and value < 0:
        raise WrongCall(f"an offset is at least 0, not {value}")
    return Aim(name, value)


def plan_resets(
    root: str, group_ids: Sequence[str], topics: Sequence[str], aim: Aim
) -> list[GroupPlan]:
    """Return what a reset of groups would change; of all groups if none is named.

    `topics` are as `parse_scope` reads them; none means all that a group has committed. A group
    that has members, or for which the aim makes no sense, has a `problem` in its plan. A group that
    does not exist is one without commits: a reset makes it. To find an offset by its time the
    topic's index is brought up to date, as whoever reads the topic does. Raises Failure.
    """
    scopes = [parse_scope(each) for each in topics]
    catalog = Catalog(root)
    states = known_groups(catalog, group_ids)
    chosen = list(group_ids) or list(states)
    committed = committed_of(catalog, chosen)
    names = {scope.topic for scope in scopes} | {t for each in committed.values() for t, _ in each}
    seek = _Seek(root, catalog, names, aim)
    return [_plan(each, states.get(each), scopes, committed[each], seek) for each in chosen]


def plan_offsets(root: str, wanted: Mapping[str, Mapping[tuple[str, int], int]]) -> list[GroupPlan]:
    """Return what putting groups to given offsets would change; {group: {partition: offset}}."""
    catalog = Catalog(root)
    states = known_groups(catalog, list(wanted))
    committed = committed_of(catalog, list(wanted))
    names = {topic for each in wanted.values() for topic, _ in each}
    seek = _Seek(root, catalog, names, Aim("to-offset"))
    plans = []
    for group_id, offsets in wanted.items():
        scopes = [TopicScope(topic, (partition,)) for topic, partition in offsets]
        find = offsets.__getitem__
        plans.append(_plan(group_id, states.get(group_id), scopes, committed[group_id], seek, find))
    return plans


def parse_offsets(text: str, group_ids: Sequence[str]) -> dict[str, dict[tuple[str, int], int]]:
    """Read a file of offsets: lines `topic,partition,offset`, or with the group before them.

    This is the form that a plan is exported in. Raises Failure that names the line.
    """
    found: dict[str, dict[tuple[str, int], int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        words = [word.strip().strip('"') for word in line.split(",")]
        try:
            groups = group_ids if len(words) == 3 else [words[-4]]
            topic, partition, offset = words[-3], int(words[-2]), int(words[-1])
            if len(words) > 4 or not topic or partition < 0 or offset < 0:
                raise ValueError
        except (ValueError, IndexError) as error:
            raise Failure(
                f"line {number}: {line!r} is neither topic,partition,offset nor "
                "group,topic,partition,offset"
            ) from error
        if not groups:
            raise Failure(f"line {number} names no group: say which one it is for")
        if group_ids and groups[0] not in group_ids:
            continue
        for group_id in groups:
            found.setdefault(group_id, {})[topic, partition] = offset
    return found


def export_offsets(plans: Iterable[GroupPlan], with_group: bool) -> str:
    """Write the wanted offsets in the form that `parse_offsets` reads, as Kafka's --export does."""
    return "".join(
        f"{plan.group_id + ',' if with_group else ''}{each.topic},{each.partition},{each.wanted}\n"
        for plan in plans
        for each in plan.changes
        if each.wanted is not None
    )


class _NoPlan(Failure):
    """The aim makes no sense for a partition of the group."""


class _Ends(Struct, frozen=True):
    start: int
    end: int


class _Seek:
    """Finds the wanted offset of a partition, and how it had to be corrected."""

    def __init__(self, root: str, catalog: Catalog, topics: set[str], aim: Aim) -> None:
        self._root, self._aim = root, aim
        self.counts = partition_counts(catalog, topics)
        chosen, parameters = among("topic", list(topics))
        rows = catalog.query(
            'SELECT topic, "partition", log_start_offset, log_end_offset FROM topic_ends '
            f"WHERE {chosen}",
            parameters,
        ).rows
        self._ends = {(topic, number): _Ends(*ends) for topic, number, *ends in rows}
        self._by_time: Callable[[str, int], int | None] | None = None

    def find(self, at: tuple[str, int], current: int | None) -> tuple[int, str | None]:
        """Return the wanted offset and what is to be told of it, None if nothing."""
        name = self._aim.name
        if name == "to-current" and current is not None:
            return current, None
        if name == "to-offset":
            return self.within(at, self._aim.value)
        if name == "shift-by":
            if current is None:
                raise _NoPlan(f"{_named(at)} has no committed offset to shift")
            return self.within(at, current + self._aim.value)
        ends = self._ends.get(at)
        if ends is None:
            raise _NoPlan(
                f"the ends of {_named(at)} are not known: {at[0]!r} is no topic with a table. "
                "Use --to-offset"
            )
        if name == "to-earliest":
            return ends.start, None
        if name in ("to-datetime", "by-duration"):
            found = self._at_time(at)
            if found is not None:
                return self.within(at, found)
            return ends.end, f"{_named(at)} has no record of that time or later: it goes to the end"
        return ends.end, None

    def within(self, at: tuple[str, int], wanted: int) -> tuple[int, str | None]:
        """Bring an offset within the log, as far as its ends are known."""
        ends = self._ends.get(at)
        low, high = (0, None) if ends is None else (ends.start, ends.end)
        if wanted < low:
            return low, f"{_named(at)}: {wanted} is before the log's start, {low}"
        if high is not None and wanted > high:
            return high, f"{_named(at)}: {wanted} is beyond the log's end, {high}"
        return wanted, None

    def _at_time(self, at: tuple[str, int]) -> int | None:
        if self._by_time is None:
            self._by_time = _offsets_by_time(self._root, {t for t, _ in self._ends}, self._aim)
        return self._by_time(*at)


def _plan(
    group_id: str,
    state: str | None,
    scopes: Sequence[TopicScope],
    committed: Mapping[tuple[str, int], int],
    seek: _Seek,
    given: Callable[[tuple[str, int]], int] | None = None,
) -> GroupPlan:
    if state is not None and state not in _INACTIVE:
        return GroupPlan(
            group_id,
            problem=f"offsets can be reset while the group is inactive, and it is {state}: "
            "stop its members first",
        )
    changes, notes = [], []
    try:
        for at in partitions_of(scopes, committed, seek.counts):
            current = committed.get(at)
            wanted, note = seek.find(at, current) if given is None else seek.within(at, given(at))
            changes.append(OffsetChange(*at, current, wanted))
            if note is not None:
                notes.append(note)
    except Failure as error:
        return GroupPlan(group_id, problem=str(error))
    if not changes:
        return GroupPlan(group_id, problem="it has no committed offsets")
    return GroupPlan(group_id, tuple(changes), notes=tuple(notes))


def _named(at: tuple[str, int]) -> str:
    return f"partition {at[1]} of topic {at[0]!r}"


def _offsets_by_time(root: str, topics: set[str], aim: Aim) -> Callable[[str, int], int | None]:
    # Imported for aims by time alone, which read records with pyarrow.
    from group_coordinator.pipeline.topics import TableTopics

    tables = TableTopics(root, topics)
    tables.catch_up()

    def find(topic: str, partition: int) -> int | None:
        tables.check_follows(topic)
        found = tables.offset_for_time(topic, partition, aim.value)
        return None if found is None else found[0]

    return find
