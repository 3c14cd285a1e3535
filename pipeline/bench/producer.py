"""What the producer's linger costs and gains: acknowledgement times and requests/s by linger.ms.

Each linger.ms meets two loads. Paced: 200 members heartbeat once a second each, evenly spread, as
in a process of many consumers; an acknowledgement's time runs from `send` until the future is
completed. Flat out: one thread sends as fast as the producer lets it, until everything is written.
The floor writes the batches that the producer made once more, by bare `RequestLog.append`, one
commit each, to a table of their own: encoding and commits without threads.

Profile: python -m cProfile -s tottime -m pipeline bench producer
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from statistics import median, quantiles
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from group_coordinator.pipeline.bench.fleet import Member
from group_coordinator.pipeline.bench.report import Column, Report
from group_coordinator.pipeline.client import ProducerSettings, RequestProducer
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.open import open_appender
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import ensure_tables
from group_coordinator.schemas.tables import REQUESTS

if TYPE_CHECKING:
    import pyarrow as pa

    from group_coordinator.schemas.messages import RequestEvent

LINGERS = (0, 5, 20, 50, 100)
MEMBERS = 200
FLAT_OUT = 100_000
_GROUPS = 10
_LEAST_SECONDS = 0.5


class LingerFigures(Struct, frozen=True):
    """One linger.ms. Times in ms; `commit` is the floor's time for one of the paced batches."""

    linger_ms: Annotated[int, Column("linger.ms")]
    commits_per_second: Annotated[float, Column("commits/s", ".1f")]
    requests_per_commit: Annotated[float, Column("a commit", ".1f")]
    ack_p50_ms: Annotated[float, Column("ack p50 ms", ".1f")]
    ack_p99_ms: Annotated[float, Column("ack p99", ".1f")]
    commit_p50_ms: Annotated[float, Column("floor p50", ".1f")]
    commit_p99_ms: Annotated[float, Column("floor p99", ".1f")]
    flat_out_per_second: Annotated[float, Column("flat out/s", ",.0f")]
    flat_out_per_commit: Annotated[float, Column("flat out, a commit", ",.0f")]
    floor_per_second: Annotated[float, Column("floor/s", ",.0f")]
    ratio: Annotated[float, Column("ratio", ".2f")]


class ProducerFigures(Report):
    """One run: the load of the paced part, and the figures of each linger.ms."""

    members: int
    paced_per_second: int
    in_flight: int
    lingers: list[LingerFigures]

    def title(self) -> str:
        """The load."""
        return f"{self.paced_per_second} requests/s of {self.members} members, and flat out"

    def rows(self) -> list[LingerFigures]:
        """Every linger."""
        return self.lingers


class _Counting:
    """An appender that remembers how many rows each of its commits had."""

    def __init__(self, appender: Appender, sizes: list[int]) -> None:
        self._appender = appender
        self._sizes = sizes

    def append(self, rows: pa.Table | None, app_id: str | None = None, version: int = 0) -> bool:
        self._sizes.append(0 if rows is None else rows.num_rows)
        return self._appender.append(rows, app_id, version)

    def write_ahead(self, rows: pa.Table) -> None:
        self._appender.write_ahead(rows)

    def last_version(self, app_id: str) -> int:
        return self._appender.last_version(app_id)

    def forget(self) -> None:
        self._appender.forget()


def bench_producer(
    seconds: float,
    say: Callable[[str], None],
    lingers: Sequence[int] = LINGERS,
    flat_out: int = FLAT_OUT,
    in_flight: int = 1,
) -> ProducerFigures:
    """Measure each linger.ms: `seconds` paced, then `flat_out` requests. `say` hears of progress.

    Raises Failure for less than half a second, which is too short to measure anything.
    """
    if seconds < _LEAST_SECONDS:
        raise Failure(f"{seconds:g} s are too short: measure {_LEAST_SECONDS} s at least")
    figures = []
    for linger in lingers:
        say(f"linger.ms = {linger}: {seconds:g} s paced, {flat_out:,} requests flat out")
        settings = ProducerSettings(linger_ms=linger, max_in_flight=in_flight)
        acks, batches = _paced(settings, seconds)
        commits = [1000 * each for each in _append(batches)]
        flat_seconds, flat_batches = _flat_out(settings, flat_out)
        floor_seconds = sum(_append(flat_batches))
        figures.append(
            LingerFigures(
                linger_ms=linger,
                commits_per_second=len(batches) / seconds,
                requests_per_commit=len(acks) / len(batches),
                ack_p50_ms=median(acks),
                ack_p99_ms=_p99(acks),
                commit_p50_ms=median(commits),
                commit_p99_ms=_p99(commits),
                flat_out_per_second=flat_out / flat_seconds,
                flat_out_per_commit=flat_out / len(flat_batches),
                floor_per_second=flat_out / floor_seconds,
                ratio=flat_seconds / floor_seconds,
            )
        )
    return ProducerFigures(MEMBERS, MEMBERS, in_flight, figures)


def _members() -> list[Member]:
    return [Member(f"bench-{i % _GROUPS}", f"member-{i}") for i in range(MEMBERS)]


def _p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100)[98] if len(values) > 1 else values[0]


def _paced(settings: ProducerSettings, seconds: float) -> tuple[list[float], list[int]]:
    """The acknowledgement times, ms, and the number of requests of each commit."""
    members = _members()
    times: list[float] = []
    sizes: list[int] = []
    with tempfile.TemporaryDirectory(prefix="bench-producer-") as root:
        ensure_tables(root, [REQUESTS])
        producer = RequestProducer(root, settings, lambda uri: _Counting(open_appender(uri), sizes))
        with producer:
            began = time.perf_counter()
            for number in range(int(seconds * MEMBERS)):
                due = began + number / MEMBERS
                time.sleep(max(0.0, due - time.perf_counter()))
                sent = time.perf_counter()
                future = producer.send(members[number % MEMBERS].heartbeat())
                future.add_done_callback(_timed(times, sent))
    return times, sizes


def _timed(times: list[float], sent: float) -> Callable[[Future[RequestEvent]], None]:
    def done(future: Future[RequestEvent]) -> None:
        future.result()
        times.append(1000 * (time.perf_counter() - sent))

    return done


def _flat_out(settings: ProducerSettings, requests: int) -> tuple[float, list[int]]:
    """The seconds until all requests are written, and the number of requests of each commit."""
    members = _members()
    events = [members[number % MEMBERS].heartbeat() for number in range(requests)]
    sizes: list[int] = []
    with tempfile.TemporaryDirectory(prefix="bench-producer-") as root:
        ensure_tables(root, [REQUESTS])
        producer = RequestProducer(root, settings, lambda uri: _Counting(open_appender(uri), sizes))
        with producer:
            began = time.perf_counter()
            futures = [producer.send(event) for event in events]
            producer.flush()
            seconds = time.perf_counter() - began
            for future in futures:
                future.result()
    return seconds, sizes


def _append(batches: Sequence[int]) -> list[float]:
    """How long bare appends of batches of these sizes take, s each."""
    members = _members()
    seconds = []
    with tempfile.TemporaryDirectory(prefix="bench-producer-floor-") as root:
        log = RequestLog(root)
        for size in batches:
            events = [members[number % MEMBERS].heartbeat() for number in range(size)]
            began = time.perf_counter()
            log.append(events)
            seconds.append(time.perf_counter() - began)
    return seconds
