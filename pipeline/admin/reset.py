"""Plans of offset resets, with the eight scenarios of Kafka's --reset-offsets.

As in Kafka, an offset outside of a partition's log is limited to the log, and the plan notes it.
The scenarios to-current, to-datetime and by-duration fall back to the log's end if there is no such
offset; shift-by needs a committed offset.

The ends of a log are taken from the topic's index (view `topic_ends`). Without a table they are
unknown: offsets can then be kept, set or shifted, but not below 0. Times and durations are in ISO
8601, as Kafka's tools accept it. Source: Apache Kafka 4.1, ConsumerGroupCommand.resetOffsets and
OffsetsUtils.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.pipeline.admin.plans import (
    GroupPlan,
    OffsetChange,
    TopicScope,
    committed_offsets_of,
    group_states,
    parse_scope,
    partition_counts,
    partitions_of,
)
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import Failure, UsageError
from group_coordinator.pipeline.monitor.catalog import Catalog, in_clause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


# Kafka's names of the scenarios, and the kind of value that each needs, "" for none. `plan_offsets`
# is the eighth, from-file.
SCENARIOS = {
    "to-earliest": "",
    "to-latest": "",
    "to-current": "",
    "to-offset": "offset",
    "shift-by": "number",
    "to-datetime": "time",
    "by-duration": "duration",
}
# In these states a group has no members, which would commit their own offsets after the reset.
_INACTIVE = ("Empty", "Dead")


class ResetScenario(Struct, frozen=True):
    """The scenario of a reset, one of `SCENARIOS`, and its value.

    The value is an offset, a number of records, or a time in ms since 1970.
    """

    name: str
    value: int = 0


def parse_scenario(name: str, text: str = "") -> ResetScenario:
    """Return the scenario `name` with the value in `text`.

    Raises Failure for an unknown name, a wrong time or a wrong duration, and UsageError for a wrong
    number.
    """
    kind = SCENARIOS.get(name)
    if kind is None:
        raise Failure(f"unknown scenario {name!r}: use {', '.join(SCENARIOS)}")
    if kind == "time":
        return ResetScenario(name, parse_time(text))
    if kind == "duration":
        return ResetScenario(name, clock_ms() - parse_duration(text))
    if not kind:
        return ResetScenario(name)
    try:
        value = int(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a whole number") from error
    if name == "to-offset" and value < 0:
        raise UsageError(f"an offset must be at least 0, not {value}")
    return ResetScenario(name, value)


def plan_resets(
    root: str, group_ids: Sequence[str], topics: Sequence[str], scenario: ResetScenario
) -> list[GroupPlan]:
    """Return the plans to reset the groups; without ids, all groups.

    `topics` are in the format of `parse_scope`; none means the partitions that a group has
    committed. A group that has members, or cannot be reset this way, has a `problem` in its plan. A
    group that does not exist is created by the reset. A reset to a time brings the topics' indexes
    up to date. Raises Failure for a malformed topic, and what `Catalog` raises.
    """
    scopes = [parse_scope(each) for each in topics]
    catalog = Catalog(root)
    states = group_states(catalog, group_ids)
    chosen = list(group_ids) or list(states)
    committed = committed_offsets_of(catalog, chosen)
    names = {scope.topic for scope in scopes} | {t for each in committed.values() for t, _ in each}
    resolver = _OffsetResolver(root, catalog, names, scenario)
    return [_plan(each, states.get(each), scopes, committed[each], resolver) for each in chosen]


def plan_offsets(root: str, wanted: Mapping[str, Mapping[tuple[str, int], int]]) -> list[GroupPlan]:
    """Return the plans to set groups to given offsets: {group: {(topic, partition): offset}}."""
    catalog = Catalog(root)
    states = group_states(catalog, list(wanted))
    committed = committed_offsets_of(catalog, list(wanted))
    names = {topic for each in wanted.values() for topic, _ in each}
    resolver = _OffsetResolver(root, catalog, names, ResetScenario("to-offset"))
    plans = []
    for group_id, offsets in wanted.items():
        scopes = [TopicScope(topic, (partition,)) for topic, partition in offsets]
        find = offsets.__getitem__
        plans.append(
            _plan(group_id, states.get(group_id), scopes, committed[group_id], resolver, find)
        )
    return plans


def parse_offsets(text: str, group_ids: Sequence[str]) -> dict[str, dict[tuple[str, int], int]]:
    """Return the offsets of each group in a file's text, by (topic, partition).

    Its lines are `topic,partition,offset` or `group,topic,partition,offset`, as `export_offsets`
    writes them. A line without a group applies to each of `group_ids`. Lines of other groups are
    ignored, unless `group_ids` is empty. Raises Failure that names the malformed line.
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
            raise Failure(f"line {number} names no group: name the group of the command")
        if group_ids and groups[0] not in group_ids:
            continue
        for group_id in groups:
            found.setdefault(group_id, {})[topic, partition] = offset
    return found


def export_offsets(plans: Iterable[GroupPlan], with_group: bool) -> str:
    """Return the wanted offsets in the format of `parse_offsets`, as Kafka's --export prints them.

    Deletions are left out.
    """
    return "".join(
        f"{plan.group_id + ',' if with_group else ''}{each.topic},{each.partition},{each.wanted}\n"
        for plan in plans
        for each in plan.changes
        if each.wanted is not None
    )


class _NotApplicable(Failure):
    """A scenario cannot be applied to a partition of the group; the message says why."""


class _LogEnds(Struct, frozen=True):
    start: int
    end: int


class _OffsetResolver:
    def __init__(
        self, root: str, catalog: Catalog, topics: set[str], scenario: ResetScenario
    ) -> None:
        self._root, self._scenario = root, scenario
        self.counts = partition_counts(catalog, topics)
        chosen, parameters = in_clause("topic", list(topics))
        rows = catalog.query(
            'SELECT topic, "partition", log_start_offset, log_end_offset FROM topic_ends '
            f"WHERE {chosen}",
            parameters,
        ).rows
        self._ends = {(topic, number): _LogEnds(*ends) for topic, number, *ends in rows}
        self._by_time: Callable[[str, int], int | None] | None = None

    def find(self, at: tuple[str, int], current: int | None) -> tuple[int, str | None]:
        """Return the wanted offset, and a note for the operator or None.

        Raises Failure if the scenario cannot be applied to the partition.
        """
        name = self._scenario.name
        if name == "to-current" and current is not None:
            return current, None
        if name == "to-offset":
            return self.within(at, self._scenario.value)
        if name == "shift-by":
            if current is None:
                raise _NotApplicable(f"{_named(at)} has no committed offset to shift")
            return self.within(at, current + self._scenario.value)
        ends = self._ends.get(at)
        if ends is None:
            raise _NotApplicable(
                f"the log ends of {_named(at)} are unknown, because topic {at[0]!r} has no table: "
                "use --to-offset"
            )
        if name == "to-earliest":
            return ends.start, None
        if name in ("to-datetime", "by-duration"):
            found = self._at_time(at)
            if found is not None:
                return self.within(at, found)
            return (
                ends.end,
                f"{_named(at)} has no record of that time or later: its offset is set to the end",
            )
        return ends.end, None

    def within(self, at: tuple[str, int], wanted: int) -> tuple[int, str | None]:
        """Return the offset limited to the log, and a note for the operator if that changes it.

        If the log's ends are unknown, only offsets below 0 are changed.
        """
        ends = self._ends.get(at)
        low, high = (0, None) if ends is None else (ends.start, ends.end)
        if wanted < low:
            return low, f"{_named(at)}: {wanted} is before the log's start, {low}"
        if high is not None and wanted > high:
            return high, f"{_named(at)}: {wanted} is beyond the log's end, {high}"
        return wanted, None

    def _at_time(self, at: tuple[str, int]) -> int | None:
        if self._by_time is None:
            self._by_time = _offsets_by_time(self._root, {t for t, _ in self._ends}, self._scenario)
        return self._by_time(*at)


def _plan(
    group_id: str,
    state: str | None,
    scopes: Sequence[TopicScope],
    committed: Mapping[tuple[str, int], int],
    resolver: _OffsetResolver,
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
        for at in partitions_of(scopes, committed, resolver.counts):
            current = committed.get(at)
            wanted, note = (
                resolver.find(at, current) if given is None else resolver.within(at, given(at))
            )
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


def _offsets_by_time(
    root: str, topics: set[str], scenario: ResetScenario
) -> Callable[[str, int], int | None]:
    # Imported here because only resets to a time read records, which needs pyarrow.
    from group_coordinator.pipeline.topics import TableTopics

    tables = TableTopics(root, topics)
    tables.catch_up()

    def find(topic: str, partition: int) -> int | None:
        tables.check_follows(topic)
        found = tables.offset_for_time(topic, partition, scenario.value)
        return None if found is None else found[0]

    return find


_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_DURATION = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII
)


def parse_time(text: str) -> int:
    """Return a time in ms since 1970; a time without a zone is in UTC. Raises Failure."""
    found = _TIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        day, time, fraction, zone = found.groups()
        moment = datetime.fromisoformat(f"{day}T{time}.{(fraction or '0').ljust(6, '0')}")
        moment = moment.replace(tzinfo=UTC) - _offset(zone)
    except (ValueError, OverflowError) as error:
        raise Failure(
            f"{text!r} is not a time such as 2026-11-17T12:00:00.000, or with a zone Z or +01:00"
        ) from error
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """Return a duration such as P1DT2H30M in ms; raises Failure."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise Failure(f"{text!r} is not a duration such as PT30M, PT1H30M or P7D")
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    return round((days * 86_400 + hours * 3_600 + minutes * 60 + seconds) * 1000)


def _offset(zone: str | None) -> timedelta:
    if zone in (None, "Z"):
        return timedelta()
    assert zone is not None
    digits = zone[1:].replace(":", "").ljust(4, "0")
    ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -ahead if zone[0] == "-" else ahead
