"""Many who ask at once are answered from one computation, which begins after all of them asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from group_coordinator.pipeline.gateway import polling
from group_coordinator.pipeline.gateway.polling import SingleFlight
from tests.waiting import LIMIT_S


class Counting:
    """A computation that ends when it is told to, and finds how many have begun."""

    fails = False

    def __init__(self) -> None:
        self.begun = 0
        self.over = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.over.wait()
        if number == 1 and self.fails:
            raise OSError("the store is away")
        return number


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


async def rounds() -> None:
    """Let all tasks go as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_who_asks_during_a_computation_is_answered_from_the_next_one() -> None:
    """One that is under way may have read already what has changed before it was asked."""

    async def story() -> None:
        flight = SingleFlight(counting := Counting())
        first = [asyncio.ensure_future(flight.result()) for _ in range(100)]
        await rounds()
        later = [asyncio.ensure_future(flight.result()) for _ in range(100)]
        await rounds()
        assert counting.begun == 1
        counting.over.set()
        assert set(await asyncio.gather(*first)) == {1}
        assert set(await asyncio.gather(*later)) == {2}
        assert await flight.result() == 3

    run(story)


def test_all_who_wait_hear_of_a_failure_and_the_next_one_does_not() -> None:
    async def story() -> None:
        flight = SingleFlight(counting := Counting())
        counting.fails = True
        counting.over.set()
        failed = await asyncio.gather(flight.result(), flight.result(), return_exceptions=True)
        assert [type(each) for each in failed] == [OSError, OSError]
        assert await flight.result() == 2

    run(story)


def test_who_gives_up_waiting_does_not_end_it_for_others() -> None:
    async def story() -> None:
        flight = SingleFlight(counting := Counting())
        gone, stays = (asyncio.ensure_future(flight.result()) for _ in range(2))
        await rounds()
        gone.cancel()
        await rounds()
        counting.over.set()
        assert await stays == 1

    run(story)


def test_one_caller_resumes_in_each_iteration_of_the_loop() -> None:
    """Other requests are served between two callers, however many there are."""

    async def story() -> None:
        flight = SingleFlight(counting := Counting())
        callers = [asyncio.ensure_future(flight.result()) for _ in range(100)]
        await rounds()
        counting.over.set()
        resumed = [0]
        while resumed[-1] < 100:
            await asyncio.sleep(0)
            resumed.append(sum(caller.done() for caller in callers))
        assert max(after - before for before, after in pairwise(resumed)) == 1

    run(story)


def test_a_closed_one_computes_no_more() -> None:
    async def story() -> None:
        flight = SingleFlight(counting := Counting())
        asked = [asyncio.ensure_future(flight.result())]
        await rounds()
        asked.append(asyncio.ensure_future(flight.result()))
        await rounds()
        await flight.close()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in found] == [asyncio.CancelledError] * 2
        assert counting.begun == 1

    run(story)


def test_there_is_a_pause_after_a_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who ask meanwhile are answered together."""
    times = iter([9.0, 10.0, 10.25, 10.5, 12.0, 20.0, 20.5, 21.0, 21.0])
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    async def story() -> None:
        flight = SingleFlight(counting := Counting(), pause=3)
        counting.over.set()
        assert await flight.result() == 1
        assert await flight.result() == 2
        # What lasts long waits for a store.
        assert await flight.result() == 3

    monkeypatch.setattr(polling, "monotonic", times.__next__)
    monkeypatch.setattr(polling.asyncio, "sleep", noted)
    run(story)
    assert pauses == [0.0, 0.5, 0.5]
