"""Requests that the coordinator of a root does not answer."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from group_coordinator.pipeline.client import RequestClient, RequestTooLarge, ResponsesLost
from group_coordinator.pipeline.gateway.coordinator_link import CoordinatorLink
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import HeartbeatRequest, RequestEvent, Response


class Lost:
    """A client that hears nothing of what it sends, until it is told why."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def submit(self, _event: RequestEvent, waiter: Any) -> None:
        self.waiting.append(waiter)


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
        link = CoordinatorLink(cast(RequestClient, client))
        for number in range(count):
            link.ask(heartbeat(f"g{number}"), answers.append)
        link.ask(heartbeat("large"), answers.append)
        for each in client.waiting[:-1]:
            each.set_exception(ResponsesLost("the table is gone"))
        client.waiting[-1].set_exception(RequestTooLarge("too large"))
        await asyncio.sleep(0)

    asyncio.run(ask())
    assert [record.getMessage() for record in caplog.records] == [line]
    codes = [answer.error_code for answer in answers]
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * count + [ErrorCode.INVALID_REQUEST]
