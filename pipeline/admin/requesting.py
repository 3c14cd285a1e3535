"""Requests that are carried out in time, or not at all.

Whoever gives up waiting for an answer must know that nothing happens afterwards. So a request
carries a deadline by the clock of the coordinator that decides it, and the coordinator answers it
REQUEST_TIMED_OUT when it comes too late (`schemas.messages.RequestEvent.deadline`). That clock is
first asked for: FindCoordinator changes nothing, and its answer has the time. What follows:

* Without a coordinator nothing but that question is ever written.
* The clocks of the operator's machine and of the coordinator's may differ by any amount: only times
  of the coordinator's clock are compared.
* A coordinator's clock that is set back after it was asked carries a request out later by as much
  and no more. So does a coordinator that takes over with a clock that is behind, but for a group
  whose time goes on from its log's (`coordinator.group.log_time`): there it is none too late.
* Within a micro-batch that was begun before the deadline, and that a crash interrupted, the request
  is decided as of the batch's own time whenever the batch is run again: parts of it may have been
  written. This is the one way in which it is carried out later, and the message of `NoAnswer`
  says so.
"""

from __future__ import annotations

import uuid
from concurrent.futures import wait
from typing import TYPE_CHECKING

from msgspec.structs import replace

from group_coordinator.pipeline.client import NoAnswer, ProducerSettings, RequestClient
from group_coordinator.pipeline.client.coordinator_clocks import time_question
from group_coordinator.pipeline.clock import monotonic
from group_coordinator.schemas.messages import RequestEvent, Response

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future

TIMEOUT_S = 30.0
# How long after the deadline an answer is waited for: what was decided just before the deadline is
# written with its batch.
_ANSWER_S = 2.0
# All that is asked at once becomes one commit: nothing of it is written before all is handed over.
_ONE_COMMIT = ProducerSettings(linger_ms=60_000, batch_size=1 << 30, buffer_memory=1 << 30)


def ask(
    root: str, requests: Sequence[RequestEvent], timeout_s: float = TIMEOUT_S
) -> list[Response]:
    """Send requests in one commit and return their answers, in the order of the requests.

    Each is decided within `timeout_s` or answered REQUEST_TIMED_OUT. Raises NoAnswer if an answer
    is missing, and what RequestClient raises.
    """
    until = monotonic() + timeout_s
    with RequestClient(root, _ONE_COMMIT) as client:
        clocks = _ask_clocks(client, root, requests, timeout_s)
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
                f"{root}, which was there just before: nothing is changed any more, unless the "
                "change had begun; look before you repeat it"
            )
        return [each.result() for each in answers]


def _ask_clocks(
    client: RequestClient, root: str, requests: Sequence[RequestEvent], timeout_s: float
) -> dict[str, int]:
    """Return the time of each group's coordinator, ms."""
    questions = [
        time_question(each, f"admin/{uuid.uuid4()}")
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
