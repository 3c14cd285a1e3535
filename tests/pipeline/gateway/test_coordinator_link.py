"""Requests that the coordinator of a root does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from group_coordinator.pipeline.client import (
    RequestClient,
    RequestTooLarge,
    ResponsesLost,
    coordinator_clocks,
)
from group_coordinator.pipeline.client.coordinator_clocks import SIGNED_FOR_MS, CoordinatorClocks
from group_coordinator.pipeline.gateway import coordinator_link
from group_coordinator.pipeline.gateway.coordinator_link import CoordinatorLink, failed
from group_coordinator.pipeline.gateway.request_context import RequestContext, Services
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import HeartbeatRequest, RequestEvent, Response

COMMIT_TIMEOUT_MS = 5_000


class Lost:
    """A client that hears nothing of what it sends, until it is told why."""

    def __init__(self, signs: bool = False) -> None:
        self.waiting: list[Any] = []
        self.clocks = CoordinatorClocks()
        self.signs = signs

    def submit(self, _event: RequestEvent, waiter: Any) -> None:
        self.waiting.append(waiter)

    def forget(self, request_id: str) -> None:
        self.waiting = [each for each in self.waiting if each.event.request_id != request_id]

    async def answer(self, responded_at: int | None) -> RequestEvent:
        """Answer what was sent first; return it."""
        request = self.waiting.pop(0)
        event: RequestEvent = request.event
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if responded_at is None else ErrorCode.NONE
        answer = replace(failed(event, code, ""), responded_at=responded_at)
        self.clocks.on_responses([answer])
        request.set_result(answer)
        await asyncio.sleep(0)
        return event


def link_of(
    client: Lost, refusal_of: Callable[[RequestEvent], Response | None] = lambda _: None
) -> CoordinatorLink:
    return CoordinatorLink(cast(RequestClient, client), COMMIT_TIMEOUT_MS, refusal_of)


def heartbeat(group_id: str) -> RequestEvent:
    body = HeartbeatRequest(member_id="m", generation_id=1)
    return RequestEvent(request_id=group_id, group_id=group_id, api="heartbeat", heartbeat=body)


@pytest.mark.parametrize(
    ("count", "line"),
    [
        (1, "heartbeat of group 'g0': the table is gone"),
        (312, "heartbeat of group 'g0' and 311 more: the table is gone"),
    ],
)
def test_all_that_fail_at_once_are_one_line(
    caplog: pytest.LogCaptureFixture, count: int, line: str
) -> None:
    answers: list[Response] = []

    async def ask() -> None:
        client = Lost()
        link = link_of(client)
        for number in range(count):
            link.send(heartbeat(f"g{number}"), answers.append)
        link.send(heartbeat("large"), answers.append)
        for each in client.waiting[:-1]:
            each.set_exception(ResponsesLost("the table is gone"))
        client.waiting[-1].set_exception(RequestTooLarge("too large"))
        await asyncio.sleep(0)

    asyncio.run(ask())
    assert [record.getMessage() for record in caplog.records] == [line]
    codes = [answer.error_code for answer in answers]
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * count + [ErrorCode.INVALID_REQUEST]


# --- requests that are decided in time ------------------------------------------------------------

# The time of `since_boot_ms`, and the coordinator's, in ms.
BOOTED, DECIDED = 7_000, 1_700_000_000_000


@pytest.fixture(autouse=True)
def booted(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (coordinator_link, coordinator_clocks):
        monkeypatch.setattr(each, "since_boot_ms", lambda: BOOTED)


def test_a_deadline_is_by_the_clock_that_the_last_answer_of_the_group_told() -> None:
    answers: list[Response] = []

    async def ask() -> None:
        client = Lost()
        link = link_of(client)
        link.send(heartbeat("g"), answers.append)
        await client.answer(DECIDED)
        link.send(heartbeat("g"), answers.append, until=BOOTED + 200)
        assert (await client.answer(DECIDED + 60_000)).deadline == DECIDED + 200
        link.send(heartbeat("g"), answers.append, until=BOOTED + 200)
        assert (await client.answer(DECIDED)).deadline == DECIDED + 60_200

    asyncio.run(ask())
    assert [each.api for each in answers] == ["heartbeat"] * 3


def test_a_coordinator_that_has_told_no_time_is_asked_for_it_first() -> None:
    answers: list[Response] = []

    async def ask() -> None:
        client = Lost()
        link = link_of(client)
        link.send(heartbeat("g"), answers.append, until=BOOTED + 200)
        question = await client.answer(DECIDED)
        assert (question.api, question.group_id, question.deadline) == (
            "find_coordinator",
            "g",
            None,
        )
        assert answers == []
        assert (await client.answer(DECIDED)).deadline == DECIDED + 200

    asyncio.run(ask())
    assert [each.api for each in answers] == ["heartbeat"]


@pytest.mark.parametrize("signs", [False, True])
def test_what_is_signed_has_a_deadline_that_ends_before_its_id_is_forgotten(signs: bool) -> None:
    """Whoever reads and writes `requests` would have it decided again after that."""

    async def ask() -> list[RequestEvent]:
        client = Lost(signs)
        link = link_of(client)
        for _ in range(2):
            link.send_once(heartbeat("g"), lambda _: None)
        return [await client.answer(DECIDED) for _ in range(4 if signs else 2)]

    *asked, first, second = asyncio.run(ask())
    assert [each.api for each in asked] == ["find_coordinator"] * (2 if signs else 0)
    deadline = DECIDED + SIGNED_FOR_MS if signs else None
    assert [first.deadline, second.deadline] == [deadline] * 2
    assert CoordinatorSettings().request_dedup_window_ms > SIGNED_FOR_MS


def test_no_request_id_tells_another_one() -> None:
    """Whoever reads one row of `requests` could write the next one first."""
    client = Lost()

    async def ask() -> list[str]:
        link = link_of(client)
        call = RequestContext(cast(Services, None), 4, None, "", "User:alice", 0, "PLAINTEXT")
        beat = HeartbeatRequest(1, "m")
        events = [call.event("heartbeat", "g", beat) for _ in range(101)]
        for event in events:
            link.send(event, lambda _: None, until=BOOTED)
        return [each.event.request_id for each in client.waiting] + [
            event.request_id for event in events
        ]

    ids = asyncio.run(ask())
    assert len({each[:24] for each in ids}) == len(ids) == 202


def test_without_a_coordinators_time_the_request_is_not_sent() -> None:
    answers: list[Response] = []

    async def ask() -> None:
        client = Lost()
        link = link_of(client)
        link.send(heartbeat("g"), answers.append, until=BOOTED + 200)
        await client.answer(None)
        # Nor is it where nobody waits any more, before and after the time is told.
        link.send(heartbeat("g"), answers.append, until=BOOTED + 200).cancel()
        assert client.waiting == []
        asked = link.send(heartbeat("g"), answers.append, until=BOOTED + 200)
        await client.answer(DECIDED)
        asked.cancel()
        assert client.waiting == []

    asyncio.run(ask())
    assert [(each.api, each.error) for each in answers] == [
        ("heartbeat", "COORDINATOR_NOT_AVAILABLE")
    ]


def test_clocks_of_groups_that_are_too_many_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_clocks, "_MAX_CLOCKS", 2)

    async def ask() -> None:
        client = Lost()
        link = link_of(client)
        for group_id in ("a", "b", "b", "c"):
            link.send(heartbeat(group_id), lambda _: None)
            await client.answer(DECIDED)
        for group_id in ("c", "a"):
            link.send(heartbeat(group_id), lambda _: None, until=BOOTED)
        assert [each.event.api for each in client.waiting] == ["heartbeat", "find_coordinator"]

    asyncio.run(ask())
