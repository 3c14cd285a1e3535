"""A simulator of the coordinator on a virtual clock: JSON lines in, responses and records out.

It runs the same state machine as the Spark job. The clock starts at 0 ms, and only the input
advances it; timers in between fire exactly at their deadlines. For each input line, the output has
any number of lines `{"at_ms", "response"}` and `{"at_ms", "record"}`, and then `{"ack": K}`. Output
is flushed after each ack, so that a driver can exchange lines over a pipe. Joins and syncs that are
still parked at the end are not answered. A malformed line yields `{"error": "line K: ..."}` before
its ack.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import msgspec

from group_coordinator.coordinator.config import ConfigError, GroupCoordinatorConfig, parse_config
from group_coordinator.coordinator.group.batch import answer_malformed, new_member_uuid
from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.coordinator import (
    GroupCoordinator,
    Node,
    refuse,
)
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.offset_deletion import cleanup
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.coordinator.group.timers import next_deadline
from group_coordinator.schemas.decoding import DECODE_ERRORS, Malformed, decode_request
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import RequestEvent, Response
from group_coordinator.schemas.records import CoordinatorRecord, GroupEvent

_log = logging.getLogger(__name__)

THIS_NODE = Node(0, "localhost", 9092)
# The statuses of an offsets partition in the input, and Kafka's error for requests of its groups.
OWNERSHIP = {
    "owned": ErrorCode.NONE,
    "loading": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "not_owned": ErrorCode.NOT_COORDINATOR,
}
# Lines of a recorded trace with these keys are not requests, and skipped.
_SKIPPED_KEYS = ("trace", "response", "note")

Output = dict[str, Any]


class BadLine(ValueError):
    """A malformed input line; the message gives the reason."""


class Simulator:
    """A coordinator of all offsets partitions on a virtual clock (ms).

    `on_event` is called with every group event; they are not in the output.
    """

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        on_event: Callable[[GroupEvent], None] = lambda _event: None,
    ) -> None:
        self.now = 0
        self._on_event = on_event
        self._config = config
        self._groups: dict[str, ClassicGroup] = {}
        self._logs: dict[str, list[CoordinatorRecord]] = {}
        self._next_offset: dict[int, int] = {}
        self._ownership: dict[int, ErrorCode] = {}
        self._timers: list[tuple[int, str]] = []
        self._seen: set[str] = set()
        self._topics: dict[str, int] | None = None
        self._coordinator = self._build()

    def _build(self) -> GroupCoordinator:
        return GroupCoordinator(self._config, new_member_uuid, self._owner, topics=self._topics)

    def _owner(self, partition: int) -> Node | None:
        owned = self._ownership_of(partition) is not ErrorCode.NOT_COORDINATOR
        return THIS_NODE if owned else None

    def _ownership_of(self, partition: int) -> ErrorCode:
        return self._ownership.get(partition, ErrorCode.NONE)

    def _begin_decision(self, group_id: str) -> Decision:
        return self._coordinator.begin_decision(group_id, self._groups.get(group_id), self.now)

    def run(self, lines: Iterable[bytes]) -> Iterator[Output]:
        """Process the lines; yields the output objects of each line, then its ack."""
        for number, line in enumerate(lines, start=1):
            try:
                yield from self.feed(line)
            except BadLine as error:
                yield {"error": f"line {number}: {error}"}
            yield {"ack": number}

    def feed(self, line: bytes) -> Iterator[Output]:
        """Process one line; yields its output objects. Raises BadLine."""
        if not line.strip():
            return
        try:
            entry = msgspec.json.decode(line)
        except DECODE_ERRORS as error:
            raise BadLine(str(error)) from error
        if not isinstance(entry, dict):
            raise BadLine("a JSON object is expected")
        yield from self.dispatch(entry)

    def dispatch(self, entry: dict[str, Any]) -> Iterator[Output]:
        """Process one decoded line; yields its output objects. Raises BadLine."""
        if "request" in entry:
            if not isinstance(entry["request"], dict):
                raise BadLine("request: a JSON object is expected")
            yield from self._request({**entry["request"], "at_ms": entry.get("at_ms")})
        elif "api" in entry or "request_id" in entry:
            yield from self._request(entry)
        elif "advance_to_ms" in entry:
            yield from self._advance(_time(entry["advance_to_ms"], "advance_to_ms"))
        elif "load" in entry:
            yield from self._load(entry["load"])
        elif "unload" in entry:
            yield from self._unload(entry["unload"])
        elif "partition" in entry:
            self._set_ownership(entry)
        elif "cleanup" in entry:
            yield from self._cleanup()
        elif "config" in entry:
            self._configure(entry["config"])
        elif "topics" in entry:
            self._set_topics(entry["topics"])
        elif not any(key in entry for key in _SKIPPED_KEYS):
            raise BadLine(f"neither a request nor a control: {', '.join(sorted(entry)) or '{}'}")

    # --- requests -------------------------------------------------------------------------------

    def _request(self, entry: dict[str, Any]) -> Iterator[Output]:
        at = entry.pop("at_ms", None)
        if at is not None:
            yield from self._advance(_time(at, "at_ms"))
        event = decode_request(msgspec.json.encode(entry))
        if event.request_id is None or event.group_id is None:
            message = f": {event.message}" if isinstance(event, Malformed) else ""
            missing = "request_id" if event.request_id is None else "group_id"
            raise BadLine(f"no {missing}{message}")
        if event.request_id in self._seen:
            return
        self._seen.add(event.request_id)
        if isinstance(event, Malformed):
            yield self._response(
                answer_malformed(event, event.request_id, event.group_id, self.now)
            )
        else:
            yield from self._take(self._decide(event))

    def _decide(self, event: RequestEvent) -> Decision:
        decision = self._begin_decision(event.group_id)
        safe = msgspec.msgpack.encode(decision.group)
        partition = partition_for(event.group_id, self._config.offsets_topic_num_partitions)
        try:
            self._coordinator.decide(decision, event, self._ownership_of(partition))
        # As in the Spark job, an exception in a handler fails only its request.
        except Exception:
            _log.exception("request %s failed", event.request_id)
            restored = msgspec.msgpack.decode(safe, type=ClassicGroup | None)
            decision = self._coordinator.begin_decision(event.group_id, restored, self.now)
            refuse(decision, event, ErrorCode.UNKNOWN_SERVER_ERROR)
        return decision

    # --- the clock ------------------------------------------------------------------------------

    def _advance(self, until: int) -> Iterator[Output]:
        if until < self.now:
            raise BadLine(f"time {until} ms is before the present, {self.now} ms")
        while self._timers and self._timers[0][0] <= until:
            due, group_id = heapq.heappop(self._timers)
            group = self._groups.get(group_id)
            # An entry is stale if the group's earliest deadline has changed since it was pushed.
            if group is None or next_deadline(group) != due:
                continue
            self.now = max(self.now, due)
            decision = self._begin_decision(group_id)
            for _ in self._coordinator.fire_due(decision):
                pass
            yield from self._take(decision)
        self.now = until

    # --- controls -------------------------------------------------------------------------------

    def _load(self, entries: Any) -> Iterator[Output]:
        if not isinstance(entries, list):
            raise BadLine("load: a list of records is expected")
        by_group: dict[str, list[CoordinatorRecord]] = {}
        for entry in entries:
            record = self._record_of(entry)
            by_group.setdefault(record.group_id, []).append(record)
        for group_id in by_group:
            group = self._groups.get(group_id)
            if group is not None and any(
                member.awaiting_join or member.awaiting_sync for member in group.members.values()
            ):
                raise BadLine(
                    f"load: group {group_id!r} has pending joins or syncs; unload it first"
                )
        for group_id, records in by_group.items():
            log = self._logs.setdefault(group_id, [])
            log.extend(records)
            for record in records:
                following = (record.log_offset or 0) + 1
                known = self._next_offset.get(record.partition, 0)
                self._next_offset[record.partition] = max(known, following)
            decision = self._begin_decision(group_id)
            self._coordinator.load(decision, log)
            yield from self._take(decision)

    def _record_of(self, entry: Any) -> CoordinatorRecord:
        if not isinstance(entry, dict) or not isinstance(entry.get("group_id"), str):
            raise BadLine("load: a record is an object with a group_id")
        partitions = self._config.offsets_topic_num_partitions
        filled = {
            "timestamp": self.now,
            "partition": partition_for(entry["group_id"], partitions),
            **{name: value for name, value in entry.items() if value is not None},
        }
        try:
            return msgspec.convert(filled, CoordinatorRecord)
        except msgspec.ValidationError as error:
            raise BadLine(f"load: {error}") from error

    def _unload(self, group_id: Any) -> Iterator[Output]:
        if not isinstance(group_id, str):
            raise BadLine("unload: a group id is expected")
        self._logs.pop(group_id, None)
        if group_id in self._groups:
            decision = self._begin_decision(group_id)
            self._coordinator.unload(decision)
            yield from self._take(decision)

    def _set_ownership(self, entry: dict[str, Any]) -> None:
        partition, status = entry["partition"], entry.get("status")
        count = self._config.offsets_topic_num_partitions
        if not _is_int(partition) or not 0 <= partition < count:
            raise BadLine(f"partition: 0 to {count - 1} is expected, not {partition!r}")
        ownership = OWNERSHIP.get(str(status))
        if ownership is None:
            known = ", ".join(OWNERSHIP)
            raise BadLine(f"status: one of {known} is expected, not {status!r}")
        self._ownership[partition] = ownership

    def _cleanup(self) -> Iterator[Output]:
        for group_id in list(self._groups):
            decision = self._begin_decision(group_id)
            cleanup(decision)
            yield from self._take(decision)

    def _configure(self, settings: Any) -> None:
        if self._seen:
            raise BadLine("config: settings go before the first request")
        if not isinstance(settings, dict):
            raise BadLine("config: an object of settings is expected")
        try:
            self._config = parse_config(settings, self._config)
        except ConfigError as error:
            raise BadLine(f"config: {error}") from error
        self._coordinator = self._build()

    def _set_topics(self, topics: Any) -> None:
        """Set the catalogue: topics with their numbers of partitions. None: every topic exists."""
        try:
            self._topics = msgspec.convert(topics, dict[str, int] | None)
        except msgspec.ValidationError as error:
            raise BadLine(f"topics: {error}") from error
        self._coordinator = self._build()

    # --- output ---------------------------------------------------------------------------------

    def _take(self, decision: Decision) -> Iterator[Output]:
        if decision.group is None:
            self._groups.pop(decision.group_id, None)
        else:
            self._groups[decision.group_id] = decision.group
            deadline = next_deadline(decision.group)
            if deadline is not None:
                heapq.heappush(self._timers, (deadline, decision.group_id))
        for event in decision.events:
            self._on_event(event)
        for record in decision.records:
            numbered = self._append(record)
            # All columns, so that the null value of a tombstone is in the output.
            columns = {
                name: getattr(numbered, name) for name in CoordinatorRecord.__struct_fields__
            }
            yield {"at_ms": self.now, "record": columns}
        for response in decision.responses:
            yield self._response(response)

    def _append(self, record: CoordinatorRecord) -> CoordinatorRecord:
        log_offset = self._next_offset.get(record.partition, 0)
        self._next_offset[record.partition] = log_offset + 1
        numbered = msgspec.structs.replace(record, log_offset=log_offset)
        self._logs.setdefault(record.group_id, []).append(numbered)
        return numbered

    def _response(self, response: Response) -> Output:
        return {"at_ms": self.now, "response": response}


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _time(value: Any, name: str) -> int:
    if not _is_int(value) or value < 0:
        raise BadLine(f"{name}: a time in ms, 0 or more, is expected, not {value!r}")
    return int(value)


def simulate(lines: Iterable[bytes], out: BinaryIO, config: GroupCoordinatorConfig) -> list[str]:
    """Run a scenario from `lines` and write the output to `out`, flushed after each ack.

    Returns the errors of the malformed lines, such as `line 3: ...`; these lines are skipped.
    """
    encode = msgspec.json.Encoder().encode
    bad = []
    for output in Simulator(config).run(lines):
        out.write(encode(output) + b"\n")
        if "error" in output:
            bad.append(output["error"])
        if "ack" in output:
            out.flush()
    return bad
