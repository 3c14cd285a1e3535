"""Tests of simulated processes and threads: which continue during a pause, and what they read."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trials.simulation.clocks import MachineClock
from tests.trials.simulation.troubles import AWAY, BROKEN, SHORT, Halt, ReadFault, Troubles
from tests.trials.simulation.world import Actor, Lock, Process, Stopped, Violation, World


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    yield world
    world.close()


def process(name: str) -> Process:
    return Process(name, MachineClock())


def test_two_processes_stand_still_at_once_with_all_their_threads(world: World) -> None:
    """Neither waits for the other, and a third process continues."""
    told: list[tuple[str, float]] = []

    def halting(one: Process, ms: float) -> None:
        world.stand_still(one, ms)
        told.append((one.name, world.now))

    first, second, third = process("first"), process("second"), process("third")
    world.later(10, Actor(first, "main"), lambda: halting(first, 500))
    world.later(20, Actor(second, "main"), lambda: halting(second, 100))
    world.later(30, Actor(first, "lease"), lambda: told.append(("lease", world.now)))
    world.later(40, Actor(third, "main"), lambda: told.append(("third", world.now)))
    world.run_until(2_000)
    names = [name for name, _ in told]
    assert names == ["third", "second", "first", "lease"]
    assert [at for _, at in told[:3]] == [40, 120, 510]
    assert 510 < told[3][1] <= 510 + 300


def test_a_process_that_is_killed_while_it_stands_still_does_nothing_more(world: World) -> None:
    told: list[str] = []
    one = process("one")

    def step() -> None:
        world.stand_still(one, 500)
        told.append("it went on")

    world.later(0, Actor(one, "main"), step)
    world.later(100, Actor(process("other"), "main"), one.kill)
    world.run_until(1_000)
    assert not told


def test_what_is_under_way_ends_with_the_world(world: World) -> None:
    told: list[str] = []

    def step() -> None:
        try:
            world.sleep(100)
        except Stopped:
            told.append("stopped")
            raise

    world.later(0, Actor(process("one"), "main"), step)
    world.run_until(1)
    world.close()
    assert told == ["stopped"]
    assert world.broken is None


def test_a_broken_promise_ends_the_run_wherever_it_is_found(world: World) -> None:
    def step() -> None:
        world.sleep(1)
        world.violate("a promise", "so")

    world.later(0, Actor(process("one"), "main"), step)
    with pytest.raises(Violation, match="so"):
        world.run_until(2_000)


def test_reads_fail_after_so_many_and_so_many_times(world: World) -> None:
    root = Path("root")
    troubles, actor = Troubles(world, root), Actor(process("one"), "main")
    troubles.add(ReadFault("one", BROKEN, after=2, times=2))
    troubles.add(ReadFault("other", BROKEN))

    def read(path: str = "root/t/f") -> object:
        try:
            return troubles.read(actor, path)
        except OSError as error:
            return error.errno

    assert [read() for _ in range(6)] == [None, None, errno.EIO, errno.EIO, None, None]
    assert (actor.failed_reads, world.counts["reads"], world.counts["reads failed"]) == (2, 6, 2)
    troubles.add(ReadFault("one", SHORT))
    share = read()
    assert isinstance(share, float)
    assert 0 <= share < 1
    troubles.add(ReadFault("one", AWAY))
    assert read() == errno.ENOENT


def test_a_process_is_killed_between_any_two_operations(world: World) -> None:
    troubles, actor = Troubles(world, Path("root")), Actor(process("one"), "main")
    troubles.add(Halt("one", 2, None))
    troubles.operation(actor)
    troubles.operation(actor)
    assert actor.alive
    with pytest.raises(Stopped):
        troubles.operation(actor)
    assert not actor.alive


def test_who_stands_still_meets_nothing_more_once_all_is_to_be_quiet(world: World) -> None:
    """Two halts are due at once: the second one is met after the first, or not at all."""
    troubles, one = Troubles(world, Path("root")), process("one")
    for ms in (500, 600):
        troubles.add(Halt("one", 0, ms))
    world.later(0, Actor(one, "main"), lambda: troubles.operation(Actor(one, "main")))
    world.later(100, Actor(process("operator"), "operator"), troubles.clear)
    world.run_until(2_000)
    assert one.still_until == 500
    troubles.operation(Actor(one, "main"))
    assert world.counts["standstills"] == 1


def test_a_thread_waits_for_a_lock_while_the_one_that_has_it_stands_still(world: World) -> None:
    """A real lock would block the only running thread, and with it the whole simulation."""
    told: list[tuple[str, float]] = []
    lock, one = Lock(world), process("one")

    def step(name: str, ms: float) -> None:
        with lock:
            world.sleep(ms / 1000)
            told.append((name, world.now))

    world.later(0, Actor(one, "first"), lambda: step("first", 500))
    world.later(10, Actor(one, "second"), lambda: step("second", 10))
    world.run_until(2_000)
    (first, began), (second, ended) = told
    assert (first, second, began) == ("first", "second", 500)
    assert 510 <= ended < 600
