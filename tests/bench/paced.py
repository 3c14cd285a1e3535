"""The load of `answer` and `soak`: members that each heartbeat once a second, evenly spread.

Requests that are due are committed every `linger_s`. A response time runs from the start of the
request's commit until a reader of `responses` has the response. The time that a request waits for
its commit, half of `linger_s` on average, is not included. With `pace_client`, which sends requests
by a `RequestClient`, it runs from `submit` until the client has the response.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from statistics import median, quantiles

from group_coordinator.pipeline.client import RequestClient
from group_coordinator.pipeline.delta.table import local_folder
from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.messages import RequestEvent, Response
from tests.support.fleet import Fleet, Member
from tests.support.process import KillableCoordinator

GROUPS = 5
MEMBERS = 20
INTERVAL_S = 1.0
# The producer's linger, s: requests handed over within it share a commit.
LINGER_S = 0.1
# A p99 of fewer answers says nothing.
LEAST_ANSWERS = 100
_POLL_S = 0.005
# How long the last answers are awaited.
_LAST_ANSWERS_S = 10.0


def pace(
    fleet: Fleet,
    seconds: float,
    process: KillableCoordinator,
    meanwhile: Callable[[list[float]], None] = lambda _times: None,
    linger_s: float = LINGER_S,
    heard: Callable[[str, float], None] = lambda _request_id, _seconds: None,
) -> tuple[list[float], int]:
    """Run heartbeats; return the response times, s, and the number of missing responses.

    `meanwhile` is called with the times so far, every few ms, and `heard` with each answered
    request and its time, s. Raises Failure if the coordinator ends, or responds with an error.
    """
    # In an object store an append takes as long as several polls, so a producer uses a thread for
    # it.
    sender = None if local_folder(fleet.root) is not None else ThreadPoolExecutor(1)
    with sender or nullcontext():

        def send(batch: list[RequestEvent]) -> None:
            if sender is None:
                fleet.requests.append(batch)
            else:
                sender.submit(fleet.requests.append, batch)

        return _pace(fleet, seconds, process, meanwhile, linger_s, heard, send)


def _pace(
    fleet: Fleet,
    seconds: float,
    process: KillableCoordinator,
    meanwhile: Callable[[list[float]], None],
    linger_s: float,
    heard: Callable[[str, float], None],
    send: Callable[[list[RequestEvent]], None],
) -> tuple[list[float], int]:
    members = fleet.members
    began = time.perf_counter()
    due = [began + INTERVAL_S * i / len(members) for i in range(len(members))]
    sent: dict[str, float] = {}
    times: list[float] = []
    next_append = began
    while True:
        now = time.perf_counter()
        if now >= began + seconds and (not sent or now > began + seconds + _LAST_ANSWERS_S):
            return times, len(sent)
        if began + seconds > now >= next_append:
            next_append = now + linger_s
            batch = []
            for i, member in enumerate(members):
                if due[i] <= now:
                    due[i] += INTERVAL_S
                    event = member.heartbeat()
                    sent[event.request_id] = now
                    batch.append(event)
            if batch:
                send(batch)
        process.check()
        for answer in fleet.answers():
            handed_over = sent.pop(answer["request_id"], None)
            # The table also has responses to other members, for example of a gateway's group that
            # rebalances.
            if handed_over is None:
                continue
            if answer["error_code"]:
                raise Failure(f"{answer['request_id']} was answered {answer['error_code']}")
            times.append(time.perf_counter() - handed_over)
            heard(answer["request_id"], times[-1])
        meanwhile(times)
        time.sleep(_POLL_S)


class _Waiting:
    """A request of `pace_client`: when it was sent, and where its answer's time goes, s."""

    __slots__ = ("_answered", "_sent_at")

    def __init__(self, answered: deque[float | BaseException]) -> None:
        self._answered = answered
        self._sent_at = time.perf_counter()

    def set_running_or_notify_cancel(self) -> bool:
        return True

    def set_result(self, response: Response, /) -> None:
        taken = time.perf_counter() - self._sent_at
        wrong = Failure(f"{response.request_id} was answered {response.error_code}")
        self._answered.append(wrong if response.error_code else taken)

    def set_exception(self, error: BaseException, /) -> None:
        self._answered.append(error)


def pace_client(
    client: RequestClient, members: Sequence[Member], seconds: float, process: KillableCoordinator
) -> list[float]:
    """Run the heartbeats of members by one client; return the response times, s. Raises Failure.

    Response times above ten seconds are left out.
    """
    began = time.perf_counter()
    due = [began + INTERVAL_S * i / len(members) for i in range(len(members))]
    answered: deque[float | BaseException] = deque()
    sent = 0
    while True:
        now = time.perf_counter()
        for i, member in enumerate(members):
            if due[i] <= now < began + seconds:
                due[i] += INTERVAL_S
                client.submit(member.heartbeat(), _Waiting(answered))
                sent += 1
        process.check()
        is_over = now >= began + seconds
        if is_over and (len(answered) == sent or now > began + seconds + _LAST_ANSWERS_S):
            break
        time.sleep(_POLL_S)
    times = []
    for each in answered:
        if isinstance(each, BaseException):
            raise each
        times.append(each)
    return times


def p50_and_p99(times: list[float], what: str, least: int = LEAST_ANSWERS) -> tuple[float, float]:
    """Return the p50 and p99, ms, of times in s. Raises Failure for fewer than `least`."""
    if len(times) < least:
        raise Failure(f"{what}: only {len(times)} answers; let it run longer")
    ms = [1000 * each for each in times]
    return median(ms), quantiles(ms, n=100)[98]
