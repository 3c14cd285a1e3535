"""One connection: which requests may follow each other, and the order of the answers."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from group_coordinator.pipeline.gateway import connection
from group_coordinator.pipeline.gateway.memory_pool import MemoryPool
from group_coordinator.pipeline.gateway.pending_request import PendingRequest
from group_coordinator.pipeline.gateway.session import Session
from group_coordinator.pipeline.gateway.wire import InvalidFrame
from tests.memory import keeps_at_most
from tests.pipeline.gateway.connecting import Made, framed
from tests.waiting import LIMIT_S

PRODUCE, FETCH, COMMIT, OFFSET_FETCH, HEARTBEAT, LEAVE = (
    bytes((0, key)) for key in (0, 1, 8, 9, 12, 13)
)


def test_answers_are_in_the_order_of_the_requests() -> None:
    async def answer() -> None:
        made = Made(MemoryPool(1 << 20))
        made.arrives(framed(HEARTBEAT + b"1", COMMIT + b"2", LEAVE + b"3"))
        for number in range(3):
            made.begun.requests[number].on_queued()
        first, second, third = made.begun.requests
        third.on_response(b"c")
        second.on_response(b"b")
        await asyncio.sleep(0)
        assert made.socket.written == b""
        first.on_response(b"a")
        await asyncio.sleep(0)
        assert made.socket.written == b"abc"

    asyncio.run(answer())


@pytest.mark.parametrize("later", [OFFSET_FETCH, FETCH, PRODUCE])
def test_a_request_of_no_queue_or_another_one_waits_for_the_answers_before_it(later: bytes) -> None:
    """A fetch of offsets must find what its consumer has committed."""

    async def answer() -> None:
        made = Made(MemoryPool(1 << 20))
        made.arrives(framed(COMMIT + b"1", COMMIT + b"2", later))
        assert made.frames == [COMMIT + b"1"]
        made.begun.requests[0].on_queued()
        made.begun.requests[1].on_queued()
        made.begun.requests[0].on_response(b"a")
        await asyncio.sleep(0)
        assert made.frames == [COMMIT + b"1", COMMIT + b"2"]
        made.begun.requests[1].on_response(b"b")
        await asyncio.sleep(0)
        assert made.frames[2:] == [later]

    asyncio.run(answer())


class Torn:
    """A session whose requests fail, each with 5 MB in hand."""

    largest_frame = 1 << 20
    must_authenticate = False

    def start(self, request: PendingRequest, _sent_after: int) -> None:
        async def respond() -> bytes:
            held = request.frame * 1_000_000
            raise InvalidFrame(f"{len(held)} bytes are no request")

        request.run(respond)


def test_a_request_that_fails_keeps_no_memory() -> None:
    async def fail() -> None:
        made = Made(MemoryPool(1 << 20))
        made.connection._session = cast(Session, Torn())
        with keeps_at_most(1 << 20):
            made.arrives(framed(FETCH + b"abc"))
            while not made.socket.is_closed:
                await asyncio.sleep(0)

    asyncio.run(fail())


# --- answers that are not read --------------------------------------------------------------------


def answered_unread(made: Made, size: int) -> None:
    """Have a connection answer so many bytes, of which the client takes none."""
    made.arrives(framed(FETCH))
    made.begun.requests[-1].response_memory.charge(size)
    made.socket.unwritten = size
    made.connection.pause_writing()
    made.begun.requests[-1].on_response(b"answer")


def test_an_answer_takes_memory_until_the_client_has_read_it() -> None:
    async def wait() -> None:
        room = MemoryPool(1 << 20)
        made = Made(room)
        answered_unread(made, 300_000)
        assert room.available == (1 << 20) - 300_000
        made.arrives(framed(FETCH))
        assert made.frames == [FETCH]
        made.socket.unwritten = 0
        made.connection.resume_writing()
        assert room.available == 1 << 20
        assert made.frames == [FETCH, FETCH]

    asyncio.run(wait())


def test_an_answer_that_is_written_at_once_takes_no_memory() -> None:
    async def wait() -> None:
        room = MemoryPool(1 << 20)
        made = Made(room)
        made.arrives(framed(FETCH))
        made.begun.requests[0].response_memory.charge(300_000)
        made.begun.requests[0].on_response(b"answer")
        assert room.available == 1 << 20

    asyncio.run(wait())


def test_a_client_that_leaves_takes_no_memory() -> None:
    async def wait() -> None:
        room = MemoryPool(1 << 20)
        made = Made(room)
        answered_unread(made, 300_000)
        made.connection.connection_lost(None)
        made.begun.requests[0].response_memory.charge(300_000)
        assert room.available == 1 << 20

    asyncio.run(wait())


def test_a_client_that_takes_no_byte_of_its_answer_is_closed() -> None:
    async def wait() -> None:
        made, slow = Made(MemoryPool(1 << 20)), Made(MemoryPool(1 << 20))
        for each in (made, slow):
            answered_unread(each, 300_000)
        slow.socket.unwritten -= 1
        for each in (made, slow):
            each.connection._check_unread(300_000)
        assert made.socket.is_aborted
        assert not slow.socket.is_aborted
        assert slow.connection.response_memory.size == 299_999
        slow.connection._check_unread(299_999)
        assert slow.socket.is_aborted

    asyncio.run(wait())


def test_whether_an_answer_is_taken_is_looked_at_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "UNREAD_LIMIT_S", 0.01)

    async def wait() -> None:
        made = Made(MemoryPool(1 << 20))
        answered_unread(made, 300_000)
        async with asyncio.timeout(LIMIT_S):
            while not made.socket.is_aborted:
                await asyncio.sleep(0.005)

    asyncio.run(wait())
