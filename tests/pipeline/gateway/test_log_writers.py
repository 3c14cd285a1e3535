"""Produce whose time runs out, or whose commit fails: what was taken in keeps its order."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.producer import ProduceRequest

from group_coordinator.pipeline.delta.log import Log
from group_coordinator.pipeline.gateway import log_writers
from group_coordinator.pipeline.gateway.apis.produce import PRODUCE
from group_coordinator.pipeline.gateway.default_record_batch import encode_batch
from group_coordinator.pipeline.gateway.log_writers import LogWriters
from group_coordinator.pipeline.gateway.request_context import RequestContext
from group_coordinator.pipeline.gateway.topic_logs import Topics
from group_coordinator.pipeline.gateway.wire import InvalidFrame
from group_coordinator.pipeline.topics import LogAppender, NewBatch, Outcome, Record, Segments
from group_coordinator.schemas.errors import ErrorCode
from tests.memory import keeps_at_most
from tests.pipeline.gateway.test_produced_batch import changed, lone_batch, torn
from tests.pipeline.topics.logs import make, values
from tests.pipeline.topics.tables import opened
from tests.waiting import LIMIT_S

MOST_BYTES = 20_000
PATIENT_MS = 60_000
TIMED_OUT = (int(ErrorCode.REQUEST_TIMED_OUT), -1)
OUT_OF_ORDER = (int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), -1)
FAILED = (int(ErrorCode.KAFKA_STORAGE_ERROR), -1)
TOO_LARGE = (int(ErrorCode.MESSAGE_TOO_LARGE), -1)
CORRUPT = (int(ErrorCode.CORRUPT_MESSAGE), -1)
CLOSED = None


Told = tuple[int, int] | None


class Gateway:
    """The records' side of a gateway with the topic `t`, and clients of it."""

    may = True

    def __init__(self, root: str) -> None:
        topic = make(root, 1)
        topics = SimpleNamespace(find=lambda _: (1, topic), poll_soon=lambda _: None)
        self.log_writers = LogWriters(root, cast(Topics, topics), 0, MOST_BYTES)
        self.services = SimpleNamespace(topics=topics, log_writers=self.log_writers)

    def sends(
        self, sequence: int, timeout_ms: int = PATIENT_MS, producer: int = 7
    ) -> asyncio.Task[Told]:
        """Send a record; what it is answered is an error and an offset."""
        record = Record(0, 1_000, None, b"%d" % sequence)
        batch = changed(encode_batch([record]), producer_id=producer, epoch=0, sequence=sequence)
        return asyncio.get_running_loop().create_task(self._first(batch, timeout_ms=timeout_ms))

    async def told(self, *batches: bytes, timeout_ms: int = PATIENT_MS) -> list[Told]:
        """What a request of these batches is answered."""
        topic = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=timeout_ms,
            topic_data=[
                topic(
                    name="t",
                    partition_data=[topic.PartitionProduceData(index=0, records=each)],
                )
                for each in batches
            ],
        )
        call = SimpleNamespace(
            services=self.services, version=9, authorize=lambda *_: self.may, on_queued=lambda: None
        )
        assert callable(PRODUCE.handler)
        try:
            response = await PRODUCE.handler(cast(RequestContext, call), request)
        except InvalidFrame:
            return [CLOSED]
        found = [each.partition_responses[0] for each in response.responses]
        return [(each.error_code, each.base_offset) for each in found]

    async def _first(self, batch: bytes, timeout_ms: int) -> Told:
        return (await self.told(batch, timeout_ms=timeout_ms))[0]


class Slow:
    """Appends of a topic that wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.begun = threading.Event(), threading.Event()
        # How many batches each had.
        self.batches: list[int] = []
        append = LogAppender.append

        def slow(appender: LogAppender, batches: Sequence[NewBatch], until: float) -> list[Outcome]:
            self.batches.append(len(batches))
            self.begun.set()
            assert self.go.wait(LIMIT_S)
            return append(appender, batches, until)

        monkeypatch.setattr(LogAppender, "append", slow)

    async def holds(self) -> None:
        """Return once an append waits."""
        assert await asyncio.to_thread(self.begun.wait, LIMIT_S)


def told(root: str, story: Callable[[Gateway], Coroutine[Any, Any, Any]]) -> Any:
    """What a story tells, once all is written."""

    async def run() -> Any:
        gateway = Gateway(root)
        found = await asyncio.wait_for(story(gateway), LIMIT_S)
        await gateway.log_writers.close()
        return found

    return asyncio.run(run())


def test_what_timed_out_before_its_commit_was_begun_is_written_in_its_place(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)

    async def story(gateway: Gateway) -> Any:
        under_way = gateway.sends(100, 1, producer=8)
        await slow.holds()
        first = gateway.sends(0, 1)
        timed_out = [await under_way, await first]
        second = gateway.sends(1)
        slow.go.set()
        return [*timed_out, await second, await gateway.sends(0), await gateway.sends(2)]

    assert told(root, story) == [TIMED_OUT, TIMED_OUT, (0, 2), (0, 1), (0, 3)]
    assert [value for _, value in values(opened(root))] == ["100", "0", "1", "2"]


def test_so_is_what_was_sent_by_a_client_that_has_left(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)

    async def story(gateway: Gateway) -> Any:
        gateway.sends(100, producer=8)
        await slow.holds()
        first, second = gateway.sends(0), gateway.sends(1)
        # Tasks run in the order in which they were made.
        await gateway.sends(9, 1, producer=9)
        first.cancel()
        slow.go.set()
        return [await second, await gateway.sends(0)]

    assert told(root, story) == [(0, 2), (0, 1)]


def test_what_waits_for_a_store_that_hangs_is_bounded(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients give up, and send again: all 300 waited, however long the store hung."""
    slow = Slow(monkeypatch)

    async def story(gateway: Gateway) -> Any:
        await gateway.sends(0, 1)
        await slow.holds()
        # Each is sent twice.
        found = [await gateway.sends(number // 2, 1) for number in range(1, 300)]
        waiting = gateway.log_writers.queued_bytes
        slow.go.set()
        while gateway.log_writers.queued_bytes:
            await asyncio.sleep(0.001)
        last = found.count(TIMED_OUT) // 2
        again = [await gateway.sends(number) for number in (0, last, last + 1)]
        return found, waiting, last, again

    found, waiting, last, again = told(root, story)
    taken_in = found.count(TIMED_OUT)
    assert found == [TIMED_OUT] * taken_in + [CLOSED] * (299 - taken_in)
    assert 5 < taken_in < 10
    assert waiting <= MOST_BYTES
    assert again == [(0, 0), (0, last), (0, last + 1)]
    assert [value for _, value in values(opened(root))] == [f"{n}" for n in range(last + 2)]


def test_what_is_larger_than_what_may_wait_waits_alone(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    large = encode_batch([Record(0, 1_000, None, bytes(2 * MOST_BYTES))])

    async def story(gateway: Gateway) -> Any:
        waits = asyncio.get_running_loop().create_task(gateway.told(large))
        await slow.holds()
        refused = await gateway.told(large)
        slow.go.set()
        return refused, await waits

    assert told(root, story) == ([CLOSED], [(0, 0)])


# --- what batches become --------------------------------------------------------------------------


def test_the_batches_of_a_request_share_a_budget(root: str) -> None:
    batch = lone_batch("zstd", bytes(20_000_000))

    async def story(gateway: Gateway) -> Any:
        return await gateway.told(batch, batch, batch), await gateway.told(batch)

    assert told(root, story) == ([(0, 0), (0, 1), TOO_LARGE], [(0, 2)])


def test_a_refused_batch_spends_from_the_budget_of_its_request(root: str) -> None:
    whole, cut_off = lone_batch("zstd", bytes(60_000_000)), torn("zstd", bytes(30_000_000))

    async def story(gateway: Gateway) -> Any:
        small = lone_batch("zstd", b"small")
        return await gateway.told(whole, small), await gateway.told(cut_off, cut_off, small)

    assert told(root, story) == ([TOO_LARGE] * 2, [CORRUPT, TOO_LARGE, TOO_LARGE])


def test_refused_batches_keep_no_memory(root: str) -> None:
    """Their errors held 52 MB each in tracebacks, which only the garbage collector freed."""
    too_large, cut_off = lone_batch("zstd", bytes(60_000_000)), torn("zstd", bytes(30_000_000))

    async def story(gateway: Gateway) -> Any:
        await gateway.told(lone_batch("zstd", b"first"))
        with keeps_at_most(100_000):
            return [await gateway.told(each) for each in (too_large, cut_off)]

    assert told(root, story) == [[TOO_LARGE], [CORRUPT]]


def test_a_request_that_is_denied_keeps_no_memory(root: str) -> None:
    batch = encode_batch([Record(0, 1_000, None, bytes(5_000_000))])

    async def story(gateway: Gateway) -> Any:
        gateway.may = False
        await gateway.told(b"first")
        with keeps_at_most(1 << 20):
            return await gateway.told(bytes(bytearray(batch)))

    assert told(root, story) == [(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), -1)]


def test_a_commit_has_so_many_bytes_of_what_batches_become(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they were sent these nine have 1,400 bytes."""
    monkeypatch.setattr(log_writers, "_MOST_BYTES", 250_000)
    slow = Slow(monkeypatch)
    batch = lone_batch("zstd", bytes(100_000))
    assert len(batch) < 150

    async def story(gateway: Gateway) -> Any:
        requests = [asyncio.ensure_future(gateway.told(batch)) for _ in range(9)]
        await slow.holds()
        slow.go.set()
        return await asyncio.gather(*requests)

    assert told(root, story) == [[(0, number)] for number in range(9)]
    assert slow.batches == [3, 3, 3]


def test_a_batch_that_cannot_be_read_is_refused_alone(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = log_writers.read_batch

    def fails_once(*args: Any) -> Any:
        monkeypatch.setattr(log_writers, "read_batch", read)
        raise MemoryError

    async def story(gateway: Gateway) -> Any:
        monkeypatch.setattr(log_writers, "read_batch", fails_once)
        return await asyncio.gather(gateway.sends(0, producer=8), gateway.sends(0))

    unknown = (int(ErrorCode.UNKNOWN_SERVER_ERROR), -1)
    assert told(root, story) == [unknown, (0, 0)]


# --- a store that fails ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Log, "create"), (Log, "next_commit"), (Segments, "poll")],
    ids=["commit", "open", "look"],
)
def test_what_follows_a_first_batch_that_could_not_be_written_waits_for_it(
    root: str, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    works = getattr(owner, name)

    def fails(*_: Any, **_options: Any) -> None:
        monkeypatch.setattr(owner, name, works)
        raise OSError(errno.EIO, "Input/output error")

    async def story(gateway: Gateway) -> Any:
        monkeypatch.setattr(owner, name, fails)
        return [await gateway.sends(number) for number in (0, 1, 0, 1)]

    assert told(root, story) == [FAILED, OUT_OF_ORDER, (0, 0), (0, 1)]


def test_a_commit_has_five_batches_of_a_producer_and_partition(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the log would not know the first of six again, if their client sent them once more."""
    slow = Slow(monkeypatch)

    async def story(gateway: Gateway) -> Any:
        requests = [gateway.sends(number) for number in range(7)]
        await slow.holds()
        slow.go.set()
        return await asyncio.gather(*requests)

    assert told(root, story) == [(0, number) for number in range(7)]
    assert slow.batches == [5, 2]
