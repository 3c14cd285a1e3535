"""Tests of the response times of a paced load, which exclude responses to other members."""

from __future__ import annotations

from typing import Any, cast

from group_coordinator.schemas.messages import RequestEvent
from tests.bench.paced import pace
from tests.support.fleet import Fleet, Member
from tests.support.process import KillableCoordinator


class EchoFleet:
    """A fleet that answers each request at once, and reports a failed request of another client."""

    def __init__(self) -> None:
        self.root = "/nowhere"
        self.members = [Member("g", "m")]
        self.requests = self
        self._asked: list[RequestEvent] = []

    def append(self, events: list[RequestEvent]) -> None:
        self._asked += events

    def answers(self) -> list[dict[str, Any]]:
        asked, self._asked = self._asked, []
        strangers = [{"request_id": "a gateway's", "error_code": 27}]
        return [{"request_id": each.request_id, "error_code": 0} for each in asked] + strangers


class Alive:
    def check(self) -> None:
        pass


def test_errors_that_others_are_answered_are_not_the_loads() -> None:
    times, missing = pace(cast(Fleet, EchoFleet()), 0.05, cast(KillableCoordinator, Alive()))
    assert (len(times), missing) == (1, 0)
