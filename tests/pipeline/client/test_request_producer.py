"""Requests of many members reach the table in few commits, each once, in order, or fail aloud."""

from __future__ import annotations

import asyncio
import random
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from group_coordinator.coordinator.consumer.backoff import ExponentialBackoff
from group_coordinator.pipeline.client import (
    BufferExhausted,
    DeliveryFailed,
    DeliveryTimeout,
    ProducerClosed,
    ProducerSettings,
    RequestProducer,
    RequestTooLarge,
    SettingsError,
    UnwritableRequest,
    parse_producer,
)
from group_coordinator.pipeline.client.request_batches import RequestAccumulator
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.schemas.messages import JoinGroupRequest, RequestEvent
from group_coordinator.schemas.tables import MOST_NUMBERED
from tests.pipeline.rows import heartbeat, rows, version

# Longer than a test may take: who waits for it, waits for ever.
NEVER_MS = 600_000
SOON_S = 20.0


def producer(root: str, open_log: Callable[[str], Appender] = Appender, **values: Any):
    values = {"linger.ms": 0, "delivery.timeout.ms": 2 * NEVER_MS, **values}
    return RequestProducer(root, parse_producer(values), open_log)


class Scripted:
    """An appender that does what the test says before, or after, it appends."""

    def __init__(self, uri: str) -> None:
        self.inner = Appender(uri)
        self.attempts: list[tuple[str | None, int, list[str]]] = []
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    def append(self, rows: pa.Table | None, app_id: str | None = None, version: int = 0) -> bool:
        assert rows is not None
        self.attempts.append((app_id, version, rows.column("request_id").to_pylist()))
        self.before()
        written = self.inner.append(rows, app_id, version)
        self.after()
        return written

    def last_version(self, app_id: str) -> int:
        return self.inner.last_version(app_id)

    def forget(self) -> None:
        self.inner.forget()


class Failing:
    """Raises the given errors, one a call, or the first one for ever."""

    def __init__(self, *errors: Exception, for_ever: bool = False) -> None:
        self.errors = list(errors)
        self.for_ever = for_ever

    def __call__(self) -> None:
        if self.errors:
            raise self.errors[0] if self.for_ever else self.errors.pop(0)


class Gate:
    """Lets nobody through until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.open.wait(SOON_S)


@pytest.fixture
def scripted(root: str) -> Scripted:
    return Scripted(f"{root}/requests")


# --- gathering ----------------------------------------------------------------------------------


def test_batch_is_ready_after_linger() -> None:
    gathered = RequestAccumulator(batch_size=100, linger_ms=50)
    assert gathered.ready_at() is None
    gathered.append(heartbeat("a"), 10, now=1000, wall_ms=7)
    gathered.append(heartbeat("b"), 10, now=1040, wall_ms=7)
    assert gathered.ready_at() == 1050
    assert [event.request_id for event in gathered.take().events] == ["a", "b"]
    assert gathered.ready_at() is None


def test_full_batch_does_not_linger() -> None:
    gathered = RequestAccumulator(batch_size=100, linger_ms=50)
    gathered.append(heartbeat("a"), 60, now=1000, wall_ms=7)
    gathered.append(heartbeat("b"), 60, now=1001, wall_ms=7)
    assert gathered.ready_at() == 1000
    gathered.take()
    assert gathered.ready_at() == 1051
    gathered.append(heartbeat("c"), 40, now=1002, wall_ms=7)
    assert gathered.ready_at() == 1001


def test_request_larger_than_a_batch_gets_its_own_batch() -> None:
    gathered = RequestAccumulator(batch_size=100, linger_ms=50)
    for name, size in (("a", 10), ("big", 500), ("b", 10)):
        gathered.append(heartbeat(name), size, now=1000, wall_ms=7)
    batches = [gathered.take() for _ in range(3)]
    assert [[e.request_id for e in batch.events] for batch in batches] == [["a"], ["big"], ["b"]]


def unstamped(name: str) -> RequestEvent:
    return heartbeat(name, sent_at=None)


def stamps(gathered: RequestAccumulator, wall_ms: int, count: int = 1) -> list[int | None]:
    batch = None
    for number in range(count):
        batch = gathered.append(unstamped(str(number)), 1, now=0, wall_ms=wall_ms)
    assert batch is not None
    return [event.sent_at for event in batch.events[-count:]]


def test_request_without_sent_at_is_stamped() -> None:
    gathered = RequestAccumulator(batch_size=100, linger_ms=50)
    gathered.append(unstamped("a"), 1, now=0, wall_ms=500)
    gathered.append(heartbeat("b", sent_at=3), 1, now=0, wall_ms=500)
    assert [event.sent_at for event in gathered.take().events] == [500, 3]


def test_two_commits_share_no_millisecond() -> None:
    gathered = RequestAccumulator(batch_size=100, linger_ms=50)
    assert stamps(gathered, 500, 2) == [500, 500]
    gathered.take()
    assert stamps(gathered, 500) == [501]
    gathered.take()
    assert stamps(gathered, 600) == [600]


def test_millisecond_has_at_most_the_numbered_stamps() -> None:
    gathered = RequestAccumulator(batch_size=10 * MOST_NUMBERED, linger_ms=50)
    found = stamps(gathered, 500, MOST_NUMBERED + 1)
    assert found == [500] * MOST_NUMBERED + [501]


def test_clock_set_back_does_not_set_back_the_stamps() -> None:
    gathered = RequestAccumulator(batch_size=100, linger_ms=50)
    assert stamps(gathered, 500) == [500]
    assert stamps(gathered, 400) == [500]
    assert stamps(gathered, 501) == [501]


# --- acknowledged -------------------------------------------------------------------------------


def test_acknowledged_request_can_be_read(root: str) -> None:
    with producer(root) as writer:
        written = writer.send(unstamped("a")).result(SOON_S)
        (row,) = rows(root, "requests")
        assert row["request_id"] == written.request_id == "a"
        assert row["sent_at"].timestamp() * 1000 == pytest.approx(written.sent_at)


def test_requests_within_the_linger_share_a_commit(root: str) -> None:
    before = version(root, "requests")
    with producer(root, **{"linger.ms": NEVER_MS}) as writer:
        futures = [writer.send(unstamped(str(number))) for number in range(300)]
        assert writer.flush()
        assert all(future.done() for future in futures)
    assert version(root, "requests") == before + 1
    found = sorted(rows(root, "requests"), key=lambda row: row["sent_at"])
    assert [row["request_id"] for row in found] == [str(number) for number in range(300)]


def test_hasten_ends_the_linger(root: str) -> None:
    with producer(root, **{"linger.ms": NEVER_MS}) as writer:
        for name in ("a", "b"):
            written = writer.send(heartbeat(name))
            writer.hasten()
            assert written.result(SOON_S).request_id == name


def test_on_poll_ends_the_linger(root: str) -> None:
    with producer(root, **{"linger.ms": NEVER_MS}) as writer:
        for name, next_poll_at in (("a", None), ("b", 0.0)):
            written = writer.send(heartbeat(name))
            writer.on_poll(next_poll_at)
            assert written.result(SOON_S).request_id == name


def test_full_batch_is_written_before_its_linger(root: str) -> None:
    with producer(root, **{"linger.ms": NEVER_MS, "batch.size": 1}) as writer:
        assert writer.send(heartbeat("a")).result(SOON_S).request_id == "a"


@pytest.mark.slow
def test_many_threads_write_each_request_once(root: str) -> None:
    with producer(root, **{"max.in.flight.requests.per.connection": 2}) as writer:

        def member(name: int) -> None:
            for number in range(20):
                writer.send(heartbeat(f"{name}/{number}", f"g{name}")).result(SOON_S)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(member, range(16)))
    found = sorted(row["request_id"] for row in rows(root, "requests"))
    assert found == sorted(f"{name}/{number}" for name in range(16) for number in range(20))


def test_group_keeps_its_order_with_many_commits_in_flight(root: str) -> None:
    logs: list[Scripted] = []

    def open_log(uri: str) -> Scripted:
        logs.append(Scripted(uri))
        return logs[-1]

    settings = {"max.in.flight.requests.per.connection": 3, "batch.size": 200}
    with producer(root, open_log, **settings) as writer:
        for number in range(60):
            writer.send(heartbeat(f"{number % 6}/{number:02}", f"g{number % 6}"))
    sent = [[name for *_, ids in log.attempts for name in ids] for log in logs]
    assert len([each for each in sent if each]) > 1
    for ids in sent:
        for group in {name[0] for name in ids}:
            of_group = [name for name in ids if name[0] == group]
            assert of_group == sorted(of_group)
    assert sum(len(each) for each in sent) == 60
    groups = [{name[0] for name in each} for each in sent]
    assert sum(len(each) for each in groups) == 6, "a group is one sender's alone"


def test_asyncio_can_await_an_acknowledgement(root: str) -> None:
    async def send() -> RequestEvent:
        return await asyncio.wait_for(asyncio.wrap_future(writer.send(heartbeat("a"))), SOON_S)

    with producer(root) as writer:
        assert asyncio.run(send()).request_id == "a"


def test_future_of_a_request_cannot_be_cancelled(root: str, scripted: Scripted) -> None:
    scripted.before = gate = Gate()
    with producer(root, lambda _uri: scripted) as writer:
        future = writer.send(heartbeat("a"))
        assert not future.cancel()
        gate.open.set()
        assert future.result(SOON_S).request_id == "a"


# --- memory -------------------------------------------------------------------------------------


def test_send_blocks_while_the_buffer_is_full_then_raises(root: str, scripted: Scripted) -> None:
    scripted.before = gate = Gate()
    limits = {"buffer.memory": 250, "batch.size": 250, "max.block.ms": 30}
    with producer(root, lambda _uri: scripted, **limits) as writer:
        first = writer.send(heartbeat("a" * 80))
        assert gate.reached.wait(SOON_S)
        with pytest.raises(BufferExhausted, match=r"buffer\.memory .*max\.block\.ms \(30 ms\)"):
            writer.send(heartbeat("b" * 80))
        gate.open.set()
        first.result(SOON_S)
        assert writer.send(heartbeat("c" * 80)).result(SOON_S)
    assert {row["request_id"][0] for row in rows(root, "requests")} == {"a", "c"}


def test_full_buffer_ends_the_linger(root: str) -> None:
    limits = {"buffer.memory": 250, "linger.ms": NEVER_MS, "max.block.ms": NEVER_MS}
    with producer(root, **limits) as writer:
        first = writer.send(heartbeat("a" * 80))
        second = writer.send(heartbeat("b" * 80))
        # The buffer is free for the second one a moment before the first one is acknowledged.
        first.result(SOON_S)
        assert not second.done()


def test_request_larger_than_the_buffer_is_refused(root: str) -> None:
    with (
        producer(root, **{"buffer.memory": 50}) as writer,
        pytest.raises(RequestTooLarge, match=r"'a+' has \d+ bytes: more than buffer\.memory, 50"),
    ):
        writer.send(heartbeat("a" * 50))


# --- failures -----------------------------------------------------------------------------------


def test_failed_commit_is_retried(root: str, scripted: Scripted) -> None:
    scripted.before = Failing(OSError("no space left"), OSError("no space left"))
    with producer(root, lambda _uri: scripted, **{"retry.backoff.ms": 1}) as writer:
        writer.send(heartbeat("a")).result(SOON_S)
    assert len(scripted.attempts) == 3
    assert [row["request_id"] for row in rows(root, "requests")] == ["a"]


def test_commit_with_unknown_outcome_is_written_once(root: str, scripted: Scripted) -> None:
    scripted.after = Failing(OSError("connection reset"))
    with producer(root, lambda _uri: scripted, **{"retry.backoff.ms": 1}) as writer:
        writer.send(heartbeat("a")).result(SOON_S)
    assert len(scripted.attempts) == 2
    assert scripted.attempts[0] == scripted.attempts[1]
    assert [row["request_id"] for row in rows(root, "requests")] == ["a"]


def test_retries_are_limited_and_the_next_batch_is_written(root: str, scripted: Scripted) -> None:
    scripted.before = Failing(OSError("no space left"), OSError("no space left"))
    limits = {"retries": 1, "retry.backoff.ms": 1}
    with producer(root, lambda _uri: scripted, **limits) as writer:
        failed = writer.send(heartbeat("a"))
        with pytest.raises(DeliveryFailed, match=r"1 request could not .* 2 attempts: no space"):
            failed.result(SOON_S)
        writer.send(heartbeat("b")).result(SOON_S)
    assert [version for _, version, _ in scripted.attempts] == [0, 0, 1]
    assert [row["request_id"] for row in rows(root, "requests")] == ["b"]


def test_delivery_fails_after_its_timeout(root: str, scripted: Scripted) -> None:
    scripted.before = Failing(OSError("no space left"), for_ever=True)
    limits = {"delivery.timeout.ms": 60, "retry.backoff.ms": 5}
    with producer(root, lambda _uri: scripted, **limits) as writer:
        failed = writer.send(heartbeat("a"))
        with pytest.raises(
            DeliveryTimeout, match=r"delivery\.timeout\.ms \(60 ms\).*no space left"
        ):
            failed.result(SOON_S)


def test_deleted_table_fails_without_retries(root: str) -> None:
    with producer(root) as writer:
        shutil.rmtree(Path(root) / "requests")
        with pytest.raises(DeliveryFailed, match=r"requests in 1 attempt: .*No such file"):
            writer.send(heartbeat("a")).result(SOON_S)


def test_unexpected_error_fails_the_futures(root: str, scripted: Scripted) -> None:
    scripted.before = Failing(KeyError("a bug"))
    with producer(root, lambda _uri: scripted) as writer:
        with pytest.raises(KeyError, match="a bug"):
            writer.send(heartbeat("a")).result(SOON_S)
        writer.send(heartbeat("b")).result(SOON_S)


def test_unwritable_request_fails_alone(root: str) -> None:
    join = JoinGroupRequest(session_timeout_ms=2**40, protocol_type="consumer", protocols=())
    bad = RequestEvent("bad", "g", "join_group", join_group=join)
    with producer(root, **{"linger.ms": NEVER_MS}) as writer:
        futures = [writer.send(event) for event in (heartbeat("a"), bad, heartbeat("b"))]
        writer.flush()
        assert isinstance(futures[1].exception(), UnwritableRequest)
        assert "'bad'" in str(futures[1].exception())
        with pytest.raises(UnwritableRequest, match="'c'"):
            writer.send(heartbeat("c", "\udc00"))
    assert sorted(row["request_id"] for row in rows(root, "requests")) == ["a", "b"]


def test_backoff_doubles_to_its_maximum_with_jitter() -> None:
    settings = ProducerSettings(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    backoff = ExponentialBackoff(settings, random.random)
    for failures, middle in ((0, 100), (1, 200), (3, 800), (4, 1000), (5000, 1000)):
        for _ in range(50):
            assert middle * 0.8 <= backoff(failures) <= min(middle * 1.2, 1000)


# --- the end ------------------------------------------------------------------------------------


def test_close_writes_pending_requests_and_accepts_no_more(root: str) -> None:
    writer = producer(root, **{"linger.ms": NEVER_MS})
    future = writer.send(heartbeat("a"))
    writer.close()
    assert future.result(0).request_id == "a"
    with pytest.raises(ProducerClosed, match="closed"):
        writer.send(heartbeat("b"))
    writer.close()


def test_close_fails_requests_not_written_in_time(root: str, scripted: Scripted) -> None:
    scripted.before = Failing(OSError("no space left"), for_ever=True)
    limits = {"retry.backoff.ms": NEVER_MS, "retry.backoff.max.ms": NEVER_MS}
    writer = producer(root, lambda _uri: scripted, **limits)
    futures = [writer.send(heartbeat(name)) for name in "ab"]
    assert not writer.flush(timeout_s=0.01)
    writer.close(timeout_s=0.01)
    assert not wait(futures, SOON_S).not_done
    assert {type(future.exception()) for future in futures} == {ProducerClosed}
    assert rows(root, "requests") == []


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lingr.ms": 5}, r"the producer: unknown setting 'lingr\.ms'; did you mean 'linger\.ms'"),
        ({"linger.ms": -1}, r">= 0 .*linger\.ms"),
        ({"batch.size": "many"}, r"Expected `int`, got `str` .*batch\.size"),
        ({"delivery.timeout.ms": 50}, r"delivery\.timeout\.ms must be more than linger\.ms"),
        ({"max.in.flight.requests.per.connection": 0}, r">= 1 .*max\.in\.flight"),
    ],
)
def test_invalid_setting_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_producer(values)


def test_settings_have_kafka_names() -> None:
    settings = parse_producer({"linger.ms": 7, "buffer.memory": 9})
    assert (settings.linger_ms, settings.buffer_memory, settings.retries) == (7, 9, 2**31 - 1)
