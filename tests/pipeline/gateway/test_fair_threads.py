"""Threads that clients share: in turn, half of them at most for one, and the gateway first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from group_coordinator.pipeline.gateway.fair_threads import GATEWAY, FairThreadPool, Owner
from tests.waiting import LIMIT_S

FLOODER, OTHER = Owner("User:eve", "/10.0.0.1"), Owner("User:bob", "/10.0.0.2")


class Held:
    """Work that lasts until the test lets it end."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.over = threading.Event()

    def __call__(self) -> None:
        self.begun.release()
        assert self.over.wait(LIMIT_S)

    async def has_begun(self) -> None:
        while not self.begun.acquire(blocking=False):
            await asyncio.sleep(0.001)


def run(story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(story(), LIMIT_S))


def order_of(*waiting: tuple[Owner, str]) -> list[str]:
    """The order in which one thread does what waits for it."""
    done: list[str] = []

    async def story() -> None:
        threads, held = FairThreadPool(1, "t"), Held()
        first = threads.run(FLOODER, held)
        await held.has_begun()
        later = [threads.run(owner, partial(done.append, name)) for owner, name in waiting]
        held.over.set()
        await asyncio.gather(first, *later)
        threads.close()

    run(story)
    return done


def test_clients_have_a_thread_in_turn() -> None:
    flood = [(FLOODER, f"f{number}") for number in range(3)]
    assert order_of(*flood, (OTHER, "o0"), (OTHER, "o1")) == ["f0", "o0", "f1", "o1", "f2"]


def test_the_same_principal_at_another_address_has_turns_of_its_own() -> None:
    elsewhere = FLOODER._replace(host=OTHER.host)
    assert order_of((FLOODER, "f0"), (FLOODER, "f1"), (elsewhere, "e")) == ["f0", "e", "f1"]


def test_the_gateway_s_own_work_is_before_all_clients_work() -> None:
    assert order_of((FLOODER, "f"), (OTHER, "o"), (GATEWAY, "g")) == ["g", "f", "o"]


def test_a_client_has_half_of_the_threads_at_most() -> None:
    """However long its work takes, there are threads for others."""

    async def story() -> None:
        threads, held = FairThreadPool(4, "t"), Held()
        flood = [threads.run(FLOODER, held) for _ in range(100)]
        await held.has_begun()
        other = threads.run(OTHER, lambda: "done")
        at_work = dict(threads._running)
        try:
            assert at_work == {FLOODER: 2, OTHER: 1}
            assert await other == "done"
        finally:
            held.over.set()
        await asyncio.gather(*flood)
        assert (threads._running, threads._waiting, threads._free) == ({}, {}, 4)
        threads.close()

    run(story)


def test_who_leaves_has_its_threads_until_its_work_ends() -> None:
    """Otherwise a client that comes again and again would have work wait in all of them."""

    async def story() -> None:
        threads, held = FairThreadPool(2, "t"), Held()
        (begun := threads.run(FLOODER, held)).cancel()
        await held.has_begun()
        again = threads.run(FLOODER, lambda: "done")
        await asyncio.sleep(0)
        assert (threads._free, threads._running) == (1, {FLOODER: 1})
        held.over.set()
        assert (await again, begun.cancelled()) == ("done", True)
        threads.close()

    run(story)


def test_what_nobody_waits_for_any_more_is_not_done() -> None:
    async def story() -> None:
        threads, held = FairThreadPool(1, "t"), Held()
        done: list[str] = []
        first = threads.run(FLOODER, held)
        given_up = threads.run(OTHER, partial(done.append, "given up"))
        await held.has_begun()
        given_up.cancel()
        await asyncio.sleep(0)
        waiting = dict(threads._waiting)
        held.over.set()
        await first
        await threads.run(OTHER, partial(done.append, "last"))
        threads.close()
        assert waiting == {}
        assert done == ["last"]

    run(story)


def test_an_error_is_raised_where_the_work_was_asked_for() -> None:
    async def story() -> None:
        threads = FairThreadPool(1, "t")
        with pytest.raises(ZeroDivisionError):
            await threads.run(OTHER, lambda: 1 // 0)
        assert await threads.run(OTHER, lambda: "done") == "done"
        threads.close()

    run(story)
