"""The load of `answer` and `soak`: members that heartbeat once a second each, evenly spread.

Requests that have come due are committed every `linger_s`. An answer's time runs from the beginning
of its request's commit until a reader of `responses` has the answer: what a request waits for its
commit, half of `linger_s` on average, is no part of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from statistics import median, quantiles

from pipeline.bench.fleet import Fleet
from pipeline.delta.table import local_folder
from pipeline.errors import Failure
from pipeline.node.process import CoordinatorProcess
from schemas.messages import RequestEvent

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
    process: CoordinatorProcess,
    meanwhile: Callable[[list[float]], None] = lambda _times: None,
    linger_s: float = LINGER_S,
) -> tuple[list[float], int]:
    """Let the members heartbeat; return the answer times, s, and how many answers never came.

    `meanwhile` is called with the times so far, every few ms. Raises Failure if the coordinator
    ends, or answers with an error.
    """
    # In a store an append takes as long as several looks, and a producer has a thread for it.
    sender = None if local_folder(fleet.root) is not None else ThreadPoolExecutor(1)
    with sender or nullcontext():

        def send(batch: list[RequestEvent]) -> None:
            if sender is None:
                fleet.requests.append(batch)
            else:
                sender.submit(fleet.requests.append, batch)

        return _pace(fleet, seconds, process, meanwhile, linger_s, send)


def _pace(
    fleet: Fleet,
    seconds: float,
    process: CoordinatorProcess,
    meanwhile: Callable[[list[float]], None],
    linger_s: float,
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
            # Others' answers are in the table, too: a gateway's members rebalance, for one.
            if handed_over is None:
                continue
            if answer["error_code"]:
                raise Failure(f"{answer['request_id']} was answered {answer['error_code']}")
            times.append(time.perf_counter() - handed_over)
        meanwhile(times)
        time.sleep(_POLL_S)


def p50_and_p99(times: list[float], what: str, least: int = LEAST_ANSWERS) -> tuple[float, float]:
    """The p50 and p99, ms, of at least `least` times, s. Raises Failure, which names `what`."""
    if len(times) < least:
        raise Failure(f"{what}: only {len(times)} answers; let it run longer")
    ms = [1000 * each for each in times]
    return median(ms), quantiles(ms, n=100)[98]
