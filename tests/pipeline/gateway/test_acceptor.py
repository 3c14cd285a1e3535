"""How many connections there may be, what one address may have, and what the log tells of it."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time

import pytest

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.gateway import acceptor
from group_coordinator.pipeline.gateway.acceptor import (
    Acceptor,
    ConnectionQuotas,
    RateLimitedLogger,
    TooManyConnections,
)
from group_coordinator.pipeline.gateway.memory_pool import AddressQuota, MemoryPool
from tests.waiting import LIMIT_S


def test_places_are_those_of_all_addresses_and_of_each() -> None:
    quotas = ConnectionQuotas(3, 2, MemoryPool(100))
    first = quotas.add("a")
    assert quotas.add("a") is first
    with pytest.raises(
        TooManyConnections,
        match=r"its address has its limit of 2 connections \(max.connections.per.ip\)",
    ):
        quotas.add("a")
    other = quotas.add("b")
    with pytest.raises(TooManyConnections, match="the gateway has its limit of 3 connections"):
        quotas.add("c")
    quotas.remove(other)
    quotas.remove(first)
    assert quotas.add("a") is first
    for _ in range(2):
        quotas.remove(first)
    assert (quotas.count, first.connections) == (0, 0)
    assert quotas.add("a") is not first


def test_an_address_that_fills_its_share_stands_in_nobody_s_way() -> None:
    quotas = ConnectionQuotas(9, 9, MemoryPool(100))
    greedy, modest = quotas.add("a").memory, quotas.add("b").memory
    given: list[str] = []
    assert greedy.try_acquire(20, print)
    assert not greedy.try_acquire(20, lambda: given.append("greedy"))
    assert modest.try_acquire(25, print)
    greedy.release(20)
    assert given == ["greedy"]


def test_a_request_larger_than_a_share_is_its_address_s_only_one() -> None:
    room = MemoryPool(100)
    memory = AddressQuota(room, 25)
    given: list[int] = []
    assert memory.try_acquire(80, print)
    assert not memory.try_acquire(1, lambda: given.append(1))
    assert room.try_acquire(20, print)
    memory.release(80)
    assert given == [1]


def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    room = MemoryPool(100)
    memory, given = AddressQuota(room, 50), []

    def for_the_share() -> None:
        given.append("share")

    def for_the_room() -> None:
        given.append("room")

    assert room.try_acquire(90, lambda: None)
    assert not memory.try_acquire(50, for_the_room)
    assert not memory.try_acquire(10, for_the_share)
    memory.withdraw(10, for_the_share)
    memory.withdraw(50, for_the_room)
    room.release(90)
    assert given == []
    assert memory.try_acquire(50, print)
    assert room.try_acquire(50, print)


# --- the log ------------------------------------------------------------------------------------


class Stopped:
    """A clock that a test sets."""

    now = 1_000.0

    def wall_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_many_lines_of_a_kind_are_few(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    logger, stopped = RateLimitedLogger(), Stopped()
    with clock.use(stopped):
        for number in range(1_000):
            logger.log(logging.INFO, "closed: %s", number)
        logger.log(logging.INFO, "refused: %s", "another kind")
        stopped.sleep(61)
        logger.log(logging.INFO, "closed: %s", "later")
        logger.log(logging.INFO, "closed: %s", "then")
    assert caplog.messages == [
        *(f"closed: {number}" for number in range(10)),
        "refused: another kind",
        "closed: later (990 more lines like this one were left out)",
        "closed: then",
    ]


# --- what cannot be accepted ----------------------------------------------------------------------


class Scarce(socket.socket):
    """A listening socket whose process has no descriptors left for a time, s."""

    scarce_s = 0.2
    asked = 0
    until: float | None = None

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        self.asked += 1
        if self.until is None:
            self.until = time.monotonic() + self.scarce_s
        if time.monotonic() < self.until:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_who_cannot_be_accepted_yet_is_accepted_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    every_s = 0.02
    monkeypatch.setattr(acceptor, "_RETRY_S", every_s)

    async def accepting() -> str:
        made = asyncio.get_running_loop().create_future()
        listener = Scarce()
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        served = Acceptor([listener], RateLimitedLogger())

        def accepted(client: socket.socket, host: str) -> None:
            client.close()
            made.set_result(host)

        served.begin(accepted)
        with socket.create_connection(("127.0.0.1", served.port), LIMIT_S):
            host = await asyncio.wait_for(made, LIMIT_S)
        served.close()
        # It is asked anew now and then, and not all the time.
        assert 1 < listener.asked <= 2 * Scarce.scarce_s / every_s
        return str(host)

    assert asyncio.run(accepting()) == "127.0.0.1"
    line = "connections cannot be accepted: [Errno 24] Too many open files"
    assert set(caplog.messages) == {line}


def test_a_value_that_a_stranger_chose_is_quoted_and_cut(caplog: pytest.LogCaptureFixture) -> None:
    logger = RateLimitedLogger()
    with caplog.at_level(logging.INFO):
        logger.log(logging.INFO, "%s is closed: %s (%d)", "h", "x\n\x1b" * 1_000_000, 5)
    (message,) = caplog.messages
    assert message.startswith("h is closed: x\\n\\x1bx")
    assert message.endswith("... (5)")
    assert message.isprintable()
    assert len(message) < 250
