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
from group_coordinator.pipeline.gateway.apis.produce import API
from group_coordinator.pipeline.gateway.call import Call
from group_coordinator.pipeline.gateway.producing import Producing
from group_coordinator.pipeline.gateway.record_batch import encode_batch
from group_coordinator.pipeline.gateway.room import Room
from group_coordinator.pipeline.gateway.topics import Topics
from group_coordinator.pipeline.topics import LogAppender, NewBatch, Outcome, Record, Segments
from group_coordinator.schemas.errors import ErrorCode
from tests.pipeline.gateway.test_produced_batch import changed
from tests.pipeline.topics.logs import make, values
from tests.pipeline.topics.tables import opened
from tests.waiting import LIMIT_S

LIMIT = 1_000
PATIENT_MS = 60_000
TIMED_OUT = (int(ErrorCode.REQUEST_TIMED_OUT), -1)
OUT_OF_ORDER = (int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), -1)
FAILED = (int(ErrorCode.KAFKA_STORAGE_ERROR), -1)


class Gateway:
    """The records' side of a gateway with the topic `t`, and clients of it."""

    def __init__(self, root: str) -> None:
        topic = make(root, 1)
        topics = SimpleNamespace(
            counts=lambda: {"t": 1}, definition=lambda _: topic, look_soon=lambda _: None
        )
        self.producing = Producing(root, cast(Topics, topics), linger_ms=0)
        self.memory = Room(LIMIT)
        self.services = SimpleNamespace(topics=topics, producing=self.producing, memory=self.memory)

    def sends(
        self, sequence: int, timeout_ms: int = PATIENT_MS, producer: int = 7
    ) -> asyncio.Task[tuple[int, int]]:
        """Send a record; what it is answered is an error and an offset."""
        record = Record(0, 1_000, None, b"%d" % sequence)
        batch = changed(encode_batch([record]), producer_id=producer, epoch=0, sequence=sequence)
        topic = ProduceRequest.TopicProduceData
        data = topic.PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=timeout_ms,
            topic_data=[topic(name="t", partition_data=[data])],
        )
        call = SimpleNamespace(
            services=self.services, version=9, may=lambda *_: True, taken_in=lambda: None
        )
        return asyncio.get_running_loop().create_task(self._told(cast(Call, call), request))

    async def _told(self, call: Call, request: ProduceRequest) -> tuple[int, int]:
        assert callable(API.answer)
        response = await API.answer(call, request)
        (found,) = response.responses[0].partition_responses
        return found.error_code, found.base_offset


class Slow:
    """Appends of a topic that wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.begun = threading.Event(), threading.Event()
        append = LogAppender.append

        def slow(appender: LogAppender, batches: Sequence[NewBatch]) -> list[Outcome]:
            self.begun.set()
            assert self.go.wait(LIMIT_S)
            return append(appender, batches)

        monkeypatch.setattr(LogAppender, "append", slow)

    async def holds(self) -> None:
        """Return once an append waits."""
        assert await asyncio.to_thread(self.begun.wait, LIMIT_S)


def told(root: str, story: Callable[[Gateway], Coroutine[Any, Any, Any]]) -> Any:
    """What a story tells, once all is written."""

    async def run() -> Any:
        gateway = Gateway(root)
        found = await asyncio.wait_for(story(gateway), LIMIT_S)
        await gateway.producing.close()
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


def test_what_is_still_to_be_written_keeps_its_room(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a store that hangs would have clients fill the memory, each time that they try again."""
    slow = Slow(monkeypatch)

    async def story(gateway: Gateway) -> Any:
        memory, room = gateway.memory, asyncio.Event()
        timed_out = await gateway.sends(0, 1)
        await slow.holds()
        is_full = not memory.take(LIMIT, room.set)
        slow.go.set()
        await room.wait()
        return timed_out, is_full

    assert told(root, story) == (TIMED_OUT, True)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Log, "create"), (Log, "next_content"), (Segments, "poll")],
    ids=["commit", "open", "look"],
)
def test_what_follows_a_first_batch_that_could_not_be_written_waits_for_it(
    root: str, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    works = getattr(owner, name)

    def fails(*_: Any) -> None:
        monkeypatch.setattr(owner, name, works)
        raise OSError(errno.EIO, "Input/output error")

    async def story(gateway: Gateway) -> Any:
        monkeypatch.setattr(owner, name, fails)
        return [await gateway.sends(number) for number in (0, 1, 0, 1)]

    assert told(root, story) == [FAILED, OUT_OF_ORDER, (0, 0), (0, 1)]
