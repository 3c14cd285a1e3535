"""The replay of a recorded trace against a live coordinator in real time.

Requests are sent in the recorded order, at the recorded times or later. A request with a member id
waits until the live id of that member is known. A request that followed the expiry of a member
waits until the live coordinator has expired that member. Later requests are delayed by the same
time. The recording does not contain expiries, so the simulator runs the same requests and counts
them.

During a wait a real client would send heartbeats. So the replay sends them for the members that
were alive at this point of the recording, or they would expire.
"""

from __future__ import annotations

import itertools
from base64 import b64encode
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from group_coordinator.coordinator.config import parse_config
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.replay.simulator import Simulator
from group_coordinator.pipeline.replay.trace import (
    Json,
    MemberIds,
    Trace,
    mentioned_ids,
    same_answer,
)
from group_coordinator.schemas.decoding import decode_request
from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.records import GroupEvent

# The interval of a member's heartbeats while the replay waits.
_KEEP_ALIVE_MS = 1000


class TraceReplay:
    """The replay of one trace: the requests that are due, and the answers that were received.

    `lag_ms` is the delay of the replay. After `compare`, `equal` counts the answers that equal the
    broker's, and `different` has the pairs that do not.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.lag_ms = 0
        self._blocked_at: int | None = None
        self._alive = _Alive(trace)
        self.sent = 0
        self.answered = 0
        self.equal = 0
        self.different: list[tuple[Json, Json]] = []
        self._ids = MemberIds()
        self._recorded = trace.answers
        self._issued = set(self._issued_ids())
        self._live: dict[str, Json] = {}
        self._waiting = deque(_rehearse(trace))
        self._expired: Counter[str] = Counter()
        self._extra = itertools.count(1)
        self.total = len(self._waiting)
        self.expected = len(self._recorded)

    def _issued_ids(self) -> Iterator[str]:
        """Yield the member ids that the broker generated; only these are mapped to live ids."""
        for answer in self._recorded.values():
            if answer["api"] == "join_group" and answer["error_code"] in (0, 79):
                yield answer["join_group"]["member_id"]

    @property
    def done(self) -> bool:
        """Whether all requests were sent, and all that the broker answered were answered here."""
        return not self._waiting and self.answered >= self.expected

    def due(self, elapsed_ms: int) -> Iterator[RequestEvent]:
        """Yield the requests to send now, `elapsed_ms` after the start of the replay."""
        while self._waiting:
            at_ms, request, expired = self._waiting[0]
            if at_ms + self.lag_ms > elapsed_ms:
                return
            if self._expired[request["group_id"]] < expired or not self._can_translate(request):
                yield from self._keep_alive(elapsed_ms, at_ms)
                return
            if self._blocked_at is not None:
                self._blocked_at = None
                self.lag_ms = elapsed_ms - at_ms
            self._waiting.popleft()
            self.sent += 1
            self._alive.sent(request)
            yield self._request(request)

    def _keep_alive(self, elapsed_ms: int, at_ms: int) -> Iterator[RequestEvent]:
        if self._blocked_at is None:
            self._blocked_at = elapsed_ms
        elif elapsed_ms - self._blocked_at >= _KEEP_ALIVE_MS:
            self._blocked_at = elapsed_ms
            for request in self._alive.heartbeats(at_ms):
                yield self._request({**request, "request_id": f"alive-{next(self._extra)}"})

    def _can_translate(self, request: Json) -> bool:
        return all(
            self._ids.knows(member_id)
            for member_id in mentioned_ids(request)
            if member_id in self._issued
        )

    def _request(self, request: Json) -> RequestEvent:
        named = {
            **self._ids.translate(request),
            "request_id": f"{self.trace.name}/{request['request_id']}",
        }
        named["sent_at"] = clock_ms()
        event = decode_request(msgspec.json.encode(named))
        if not isinstance(event, RequestEvent):
            raise ValueError(f"trace {self.trace.name}: {event.message}")
        return event

    def on_response(self, answer: Json) -> None:
        """Record the live coordinator's answer to a request of this trace."""
        recorded_id = answer["request_id"].partition("/")[2]
        recorded = self._recorded.get(recorded_id)
        if recorded is None:
            return
        self._ids.learn(recorded, answer)
        self._live[recorded_id] = {**answer, "request_id": recorded_id}
        self.answered += 1

    def on_event(self, event: Json) -> None:
        """Count the expiry of a member if `event`, a row of `group_events`, is one."""
        if event["event"] == "member_expired":
            self._expired[event["group_id"]] += 1

    def compare(self) -> None:
        """Compare all answers with the broker's.

        Call this after the last answer, because only then all member ids are known.
        """
        for request_id, recorded in self._recorded.items():
            live = self._live.get(request_id)
            if live is None:
                continue
            if same_answer(recorded, live, self._ids):
                self.equal += 1
            else:
                self.different.append((self._ids.translate(recorded), live))


class _Alive:
    """The members that were alive at a time of the recording, and their heartbeats."""

    def __init__(self, trace: Trace) -> None:
        self._sessions: dict[str, int] = {}
        self._times: dict[str, list[int]] = {}
        self._beats: dict[str, Json] = {}
        answers = trace.answers
        for line in trace.lines:
            request = line.request
            if request is None:
                continue
            body = request.get(request["api"]) or {}
            answer = answers.get(request["request_id"])
            if request["api"] == "join_group" and answer is not None:
                member_id = answer["join_group"]["member_id"]
                self._sessions[member_id] = body["session_timeout_ms"]
            if body.get("member_id"):
                self._times.setdefault(body["member_id"], []).append(line.at_ms)

    def sent(self, request: Json) -> None:
        """Store the heartbeat that the sender of a request would send next."""
        body = request.get(request["api"]) or {}
        member_id = body.get("member_id")
        if member_id and "generation_id" in body:
            beat = {name: body[name] for name in ("generation_id", "member_id")}
            beat["group_instance_id"] = body.get("group_instance_id")
            head = {name: request[name] for name in ("group_id", "client_id", "client_host")}
            self._beats[member_id] = {**head, "api": "heartbeat", "heartbeat": beat}

    def heartbeats(self, at_ms: int) -> Iterator[Json]:
        """Yield a heartbeat of each member that was alive at `at_ms` in the recording.

        A member was alive if the time between its previous and its next request is shorter than its
        session timeout.
        """
        for member_id, beat in self._beats.items():
            times = self._times[member_id]
            following = bisect_right(times, at_ms)
            if following < len(times) and following > 0:
                silence = times[following] - times[following - 1]
                if silence < self._sessions.get(member_id, 0):
                    yield beat


def _rehearse(trace: Trace) -> list[tuple[int, Json, int]]:
    """Return the requests, each with its time (ms) and the earlier expiries in its group.

    A simulator that runs the trace counts the expiries.
    """
    expired: Counter[str] = Counter()

    def count(event: GroupEvent) -> None:
        expired[event.group_id] += event.event == "member_expired"

    delay = "group.initial.rebalance.delay.ms"
    simulator = Simulator(parse_config({delay: trace.settings[delay]}), count)
    answers = trace.answers
    ids = MemberIds()
    requests = []
    for line in trace.lines:
        if line.request is None:
            continue
        for _ in simulator.dispatch({"advance_to_ms": max(line.at_ms, simulator.now)}):
            pass
        requests.append((line.at_ms, line.request, expired[line.request["group_id"]]))
        for output in simulator.dispatch(ids.translate(line.request)):
            if "response" in output:
                live = msgspec.to_builtins(output["response"])
                if live["request_id"] in answers:
                    ids.learn(answers[live["request_id"]], live)
    return requests


def to_answers(rows: Iterable[Json]) -> list[Json]:
    """Return rows of the table `responses` as JSON objects with the fields of recorded answers."""
    return [_answer(row) for row in rows]


def _answer(row: Json) -> Json:
    api = row["api"]
    head = {key: row[key] for key in ("request_id", "group_id", "api", "error_code", "error")}
    return {**head, api: to_json(row.get(api) or {})}


def to_json(value: Any) -> Any:
    """Return a row's value as JSON; bytes become base64."""
    if isinstance(value, dict):
        return {key: to_json(one) for key, one in value.items()}
    if isinstance(value, list):
        return [to_json(one) for one in value]
    return b64encode(value).decode() if isinstance(value, bytes) else value
