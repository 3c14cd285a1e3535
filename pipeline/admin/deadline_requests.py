"""Requests with a deadline: the coordinator decides them in time or changes nothing.

An operator that stops waiting for an answer must know that no change happens later. So a request
has a deadline by its coordinator's clock (`schemas.messages.RequestEvent.deadline`), after which
the coordinator answers REQUEST_TIMED_OUT. That clock is first read from the answer to a
FindCoordinator, which changes nothing. Consequences:

* If no coordinator answers, only the FindCoordinator requests are written.
* The clocks of the operator's machine and of the coordinator may differ by any amount.
* If the coordinator's clock is set back, or a coordinator with a slower clock takes over, a request
  may be decided late, at most by the difference. A group with a time that continues from its log
  (`coordinator.group.log_time`) is an exception.
* If a crash interrupts a micro-batch that began before the deadline, the repeated batch decides as
  of its original time, because parts of its results may have been written. Such a change is made
  after the deadline, and the message of `NoAnswer` says so.
"""

from __future__ import annotations

import uuid
from concurrent.futures import wait
from typing import TYPE_CHECKING

from msgspec.structs import replace

from group_coordinator.pipeline.client import NoAnswer, ProducerSettings, RequestClient
from group_coordinator.pipeline.client.coordinator_clocks import time_request
from group_coordinator.pipeline.clock import monotonic
from group_coordinator.schemas.messages import RequestEvent, Response

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future


TIMEOUT_S = 30.0
# How long the client waits after the deadline, s: a request that was decided just before it is
# answered when its batch is written.
_ANSWER_S = 2.0
# With these limits, the client writes nothing before `flush`, and then one commit.
_ONE_COMMIT = ProducerSettings(linger_ms=60_000, batch_size=1 << 30, buffer_memory=1 << 30)


def send_with_deadline(
    root: str, requests: Sequence[RequestEvent], timeout_s: float = TIMEOUT_S
) -> list[Response]:
    """Send requests in one commit; return their answers, in the order of the requests.

    A request is decided within `timeout_s` or answered REQUEST_TIMED_OUT. Raises NoAnswer if an
    answer is missing, and what RequestClient raises.
    """
    until = monotonic() + timeout_s
    with RequestClient(root, _ONE_COMMIT) as client:
        clocks = _read_clocks(client, root, requests, timeout_s)
        left_s = max(0.0, until - monotonic())
        dated = [
            replace(each, deadline=clocks[each.group_id] + round(left_s * 1000))
            for each in requests
        ]
        answers = [client.send(each) for each in dated]
        client.flush(left_s)
        missing = _missing(dated, answers, left_s + _ANSWER_S)
        if missing:
            raise NoAnswer(
                f"no answer within {timeout_s:g} s from the coordinator of {_named(missing)} on "
                f"{root}, which answered just before: nothing will be changed, unless the change "
                "had begun; check the offsets before you repeat the command"
            )
        return [each.result() for each in answers]


def _read_clocks(
    client: RequestClient, root: str, requests: Sequence[RequestEvent], timeout_s: float
) -> dict[str, int]:
    """Return the time of each group's coordinator, ms since 1970. Raises NoAnswer."""
    questions = [
        time_request(each, f"admin/{uuid.uuid4()}")
        for each in {each.group_id: each for each in requests}.values()
    ]
    answers = [client.send(each) for each in questions]
    client.flush(timeout_s)
    missing = _missing(questions, answers, timeout_s)
    found = {}
    for question, answer in zip(questions, answers, strict=True):
        time = None if question in missing else answer.result().responded_at
        if time is not None:
            found[question.group_id] = time
    if len(found) < len(questions):
        raise NoAnswer(
            f"no answer within {timeout_s:g} s: is a coordinator running on {root}? "
            f"Nothing of {_named(each for each in questions if each.group_id not in found)} was "
            "changed, or will be"
        )
    return found


def _missing(
    requests: Sequence[RequestEvent], answers: Sequence[Future[Response]], timeout_s: float
) -> list[RequestEvent]:
    wait(answers, timeout_s)
    missing = [each for each, answer in zip(requests, answers, strict=True) if not answer.done()]
    for answer in answers:
        answer.cancel()
    return missing


def _named(requests: Iterable[RequestEvent]) -> str:
    groups = sorted({each.group_id for each in requests})
    rest = f" and {len(groups) - 3} more" if len(groups) > 3 else ""
    kind = "group" if len(groups) == 1 else "groups"
    return f"{kind} {', '.join(repr(each) for each in groups[:3])}{rest}"
