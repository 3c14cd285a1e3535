"""A recorded trace held again with a live coordinator, in real time.

Requests go in the order recorded and no sooner than recorded. One that names a member waits until
that member's id here is known, and then all that follows is later by as much: the gaps between
requests, which decide whether a session lives, are never shorter than they were.
"""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from pipeline.recorded import Json, MemberIds, Trace, mentioned_ids, same_answer
from schemas.messages import RequestEvent, decode_request


class TraceReplay:
    """One trace on its way through a live coordinator."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.lag_ms = 0
        self._blocked = False
        self.sent = 0
        self.answered = 0
        self.equal = 0
        self.different: list[tuple[Json, Json]] = []
        self._ids = MemberIds()
        self._recorded = trace.answers
        self._issued = set(self._issued_ids())
        self._live: dict[str, Json] = {}
        self._waiting = deque(
            (line.at_ms, line.request) for line in trace.lines if line.request is not None
        )
        self.total = len(self._waiting)
        self.expected = len(self._recorded)

    def _issued_ids(self) -> Iterator[str]:
        """Member ids that the broker made; others were made up by the client and stay."""
        for answer in self._recorded.values():
            if answer["api"] == "join_group" and answer["error_code"] in (0, 79):
                yield answer["join_group"]["member_id"]

    @property
    def done(self) -> bool:
        """Whether every request is sent and every answer that the broker gave has its twin."""
        return not self._waiting and self.answered >= self.expected

    def due(self, elapsed_ms: int) -> Iterator[RequestEvent]:
        """The requests to send now, `elapsed_ms` after the replay began."""
        while self._waiting:
            at_ms, request = self._waiting[0]
            if at_ms + self.lag_ms > elapsed_ms:
                return
            if not self._can_translate(request):
                self._blocked = True
                return
            if self._blocked:
                self._blocked = False
                self.lag_ms = elapsed_ms - at_ms
            self._waiting.popleft()
            self.sent += 1
            yield self._request(request)

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
        event = decode_request(msgspec.json.encode(named))
        if not isinstance(event, RequestEvent):
            raise ValueError(f"trace {self.trace.name}: {event.message}")
        return event

    def heard(self, answer: Json) -> None:
        """Take the coordinator's answer to one of our requests."""
        recorded_id = answer["request_id"].partition("/")[2]
        recorded = self._recorded.get(recorded_id)
        if recorded is None:
            return
        self._ids.learn(recorded, answer)
        self._live[recorded_id] = {**answer, "request_id": recorded_id}
        self.answered += 1

    def compare(self) -> None:
        """Hold all answers against the broker's, once every member id is known."""
        for request_id, recorded in self._recorded.items():
            live = self._live.get(request_id)
            if live is None:
                continue
            if same_answer(recorded, live, self._ids):
                self.equal += 1
            else:
                self.different.append((self._ids.translate(recorded), live))


def to_answers(rows: pa.Table) -> list[Json]:
    """Rows of the `responses` table as the JSON objects of the contract."""
    return [_answer(row) for row in rows.to_pylist()]


def _answer(row: Json) -> Json:
    api = row["api"]
    head = {key: row[key] for key in ("request_id", "group_id", "api", "error_code", "error")}
    return {**head, api: _json(row.get(api) or {})}


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_json(one) for one in value]
    return b64encode(value).decode() if isinstance(value, bytes) else value
