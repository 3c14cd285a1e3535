"""What has come on a connection, when it may come, and the room that it takes meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from group_coordinator.pipeline.gateway import connection, receiving
from group_coordinator.pipeline.gateway.memory_pool import MemoryPool
from group_coordinator.pipeline.gateway.wire import RefusedRequest
from group_coordinator.pipeline.gateway_settings import FREE_BYTES
from tests.pipeline.gateway.connecting import Begun, Made, framed
from tests.waiting import LIMIT_S

LARGE = b"\0\x03" + bytes(100_000)
SMALL = b"\0\x0bjoin"


def in_loop(test: Callable[[], None]) -> None:
    async def run() -> None:
        test()

    asyncio.run(run())


def test_who_waits_for_room_is_not_idle_and_goes_on_when_there_is_some() -> None:
    def wait() -> None:
        room = MemoryPool(150_000)
        assert room.try_acquire(100_000, lambda: None)
        made = Made(room)
        assert not made.connection.is_busy
        made.arrives(framed(LARGE)[:10])
        assert made.connection.is_busy
        assert not made.socket.is_read
        room.release(100_000)
        assert not made.connection.is_busy
        assert made.socket.is_read
        made.arrives(framed(LARGE)[10:])
        assert made.frames == [LARGE]
        assert not room.try_acquire(100_000, print)
        made.begun.requests[0].on_response(b"")
        made.connection.close()
        assert room.try_acquire(50_000, print)

    in_loop(wait)


def test_no_room_is_taken_for_a_frame_while_those_before_it_wait() -> None:
    """Its client could not send the rest: the socket is not read meanwhile."""

    def wait() -> None:
        room = MemoryPool(150_000)
        made = Made(room)
        made.arrives(framed(SMALL, SMALL, SMALL, LARGE)[:100])
        assert made.frames == [SMALL]
        assert not made.socket.is_read
        assert room.try_acquire(150_000, print)
        room.release(150_000)
        made.begun.requests[0].on_response(b"")
        assert made.socket.is_read
        assert not room.try_acquire(150_000, print)
        made.arrives(framed(SMALL, SMALL, SMALL, LARGE)[100:])
        for each in (1, 2):
            made.begun.requests[each].on_response(b"")
        assert made.frames == [SMALL, SMALL, SMALL, LARGE]

    in_loop(wait)


@pytest.mark.parametrize("received", [10, len(LARGE)])
def test_a_frame_that_has_room_and_does_not_come_gives_it_back(
    monkeypatch: pytest.MonkeyPatch, received: int
) -> None:
    monkeypatch.setattr(receiving, "FRAME_LIMIT_S", 0.01)

    async def wait() -> None:
        room = MemoryPool(150_000)
        slow = Made(room)
        slow.arrives(framed(LARGE)[:received])
        granted = asyncio.get_running_loop().create_future()
        assert not room.try_acquire(150_000, lambda: granted.set_result(None))
        await asyncio.wait_for(granted, LIMIT_S)
        assert slow.socket.is_aborted
        assert slow.frames == []

    asyncio.run(wait())


def test_a_frame_that_came_in_time_may_be_answered_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "FRAME_LIMIT_S", 0.01)

    async def wait() -> None:
        made = Made(MemoryPool(150_000))
        made.arrives(framed(LARGE))
        await asyncio.sleep(0.05)
        assert not made.socket.is_aborted
        made.begun.requests[0].on_response(b"")

    asyncio.run(wait())


def test_a_frame_of_64_kb_takes_no_room() -> None:
    def wait() -> None:
        room = MemoryPool(150_000)
        made = Made(room)
        made.arrives(framed(bytes(FREE_BYTES))[:-1])
        assert room.try_acquire(150_000, print)

    in_loop(wait)


@pytest.mark.parametrize("largest", [1 << 20, 2**31 - 1])
def test_a_tls_hello_is_called_that(caplog: pytest.LogCaptureFixture, largest: int) -> None:
    caplog.set_level(logging.INFO)

    def wait() -> None:
        made = Made(MemoryPool(150_000))
        made.begun.largest_frame = largest
        made.arrives(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(40))
        assert made.socket.is_closed

    in_loop(wait)
    (line,) = caplog.messages
    told = "closed: a TLS hello came to a listener without TLS: b'\\x16\\x03\\x01\\x02\\x00\\x01"
    assert told in line


@pytest.mark.parametrize("logs_in", [True, False])
def test_only_who_has_logged_in_stays_after_the_deadline(
    monkeypatch: pytest.MonkeyPatch, logs_in: bool
) -> None:
    monkeypatch.setattr(connection, "AUTHENTICATION_LIMIT_S", 0.01)
    monkeypatch.setattr(Begun, "must_authenticate", True)

    async def wait() -> None:
        made = Made(MemoryPool(1))
        made.begun.must_authenticate = not logs_in
        await asyncio.sleep(0.05)
        assert made.socket.is_aborted is not logs_in

    asyncio.run(wait())


def test_who_was_refused_takes_no_more_room() -> None:
    """Its last answer is left to it for a moment, in which it may send what it likes."""

    def wait() -> None:
        room = MemoryPool(150_000)
        made = Made(room)
        made.arrives(framed(SMALL))
        made.begun.requests[0].on_error(RefusedRequest("no", b""))
        made.arrives(framed(LARGE)[:10])
        assert room.try_acquire(150_000, print)

    in_loop(wait)


def test_who_leaves_while_it_waits_for_room_waits_no_more() -> None:
    def wait() -> None:
        room = MemoryPool(150_000)
        assert room.try_acquire(100_000, lambda: None)
        made = Made(room)
        made.arrives(framed(LARGE)[:10])
        made.connection.close()
        made.connection.connection_lost(None)
        assert room.try_acquire(50_000, print)
        room.release(150_000)
        assert room.try_acquire(150_000, print)

    in_loop(wait)
