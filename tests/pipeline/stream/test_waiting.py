"""How long the source waits: for what the driver says, whatever the clocks do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.stream.timer_schedule import NEVER_MS, WakeFile
from group_coordinator.pipeline.stream.waiting import Waiting

INTERVAL_MS, LONGEST_MS = 500, 10_000


class Clocks:
    """A wall clock that is set forward or back at some times, by so many ms."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.steps: dict[float, int] = {}

    def wall_ms(self) -> int:
        steps = sum(by for at, by in self.steps.items() if at <= self.now_ms)
        return 1_000_000 + int(self.now_ms) + steps

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.now_ms += 1000 * seconds


@pytest.fixture
def clocks() -> Iterator[Clocks]:
    with clock.use(found := Clocks()):
        yield found


@pytest.fixture
def driver() -> Iterator[WakeFile]:
    file = WakeFile.create()
    yield file
    file.delete()


def waiting(driver: WakeFile | None, is_store: bool = False) -> Waiting:
    source = None if driver is None else WakeFile.open(str(driver.path))
    return Waiting(INTERVAL_MS, LONGEST_MS, is_store, source)


def waited_ms(clocks: Clocks, one: Waiting) -> float:
    """How long a read without requests takes."""
    began = clocks.now_ms
    one.begin()
    while not one.is_over():
        if one.is_poll_due():
            one.polled(False)
        clocks.sleep(one.pause_s())
    one.end()
    return clocks.now_ms - began


def test_a_timer_that_is_due_is_looked_at_then(clocks: Clocks, driver: WakeFile):
    driver.due_ms = 1_000_000 + 7_000
    assert waited_ms(clocks, waiting(driver)) == pytest.approx(7_000, abs=26)


def test_a_timer_that_is_due_at_once_waits_for_the_interval(clocks: Clocks, driver: WakeFile):
    driver.due_ms = 1_000_000
    one = waiting(driver)
    assert waited_ms(clocks, one) == pytest.approx(INTERVAL_MS, abs=26)
    assert waited_ms(clocks, one) == pytest.approx(INTERVAL_MS, abs=26), "it is due still"


@pytest.mark.parametrize("due_ms", [NEVER_MS, 1_000_000 + LONGEST_MS + 1])
def test_there_is_a_batch_now_and_then_whatever_is_due(clocks, driver: WakeFile, due_ms: int):
    driver.due_ms = due_ms
    assert waited_ms(clocks, waiting(driver)) == pytest.approx(LONGEST_MS, abs=26)


def test_a_driver_that_has_said_nothing_yet_may_have_timers(clocks: Clocks, driver: WakeFile):
    assert waited_ms(clocks, waiting(driver)) == pytest.approx(INTERVAL_MS, abs=26)


@pytest.mark.parametrize("content", [None, b"", b"too little"])
def test_without_the_driver_s_file_there_is_a_batch_every_interval(
    clocks: Clocks, tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    assert WakeFile.open(str(path)) is None
    assert "every trigger.interval.ms" in caplog.text
    assert waited_ms(clocks, waiting(None)) == pytest.approx(INTERVAL_MS, abs=26)


def test_a_clock_that_is_set_forward_makes_timers_due(clocks: Clocks, driver: WakeFile):
    driver.due_ms = 1_000_000 + 3_600_000
    clocks.steps[2_000] = 3_600_000
    assert waited_ms(clocks, waiting(driver)) == pytest.approx(2_000, abs=26)


def test_a_clock_that_is_set_back_makes_timers_later_but_no_batch(clocks: Clocks, driver: WakeFile):
    driver.due_ms = 1_000_000 + 3_000
    clocks.steps[2_000] = -3_600_000
    assert waited_ms(clocks, waiting(driver)) == pytest.approx(LONGEST_MS, abs=26)


@pytest.mark.parametrize("is_store", [False, True])
def test_the_driver_wakes_the_source_at_once(clocks: Clocks, driver: WakeFile, is_store: bool):
    driver.due_ms = NEVER_MS
    one = waiting(driver, is_store)
    one.begin()
    clocks.sleep(0.1)
    assert not one.is_over()
    driver.wake()
    assert one.is_over()
    one.end()
    one.begin()
    assert not one.is_over(), "once"


def test_a_driver_that_wakes_the_source_while_a_batch_runs_has_one_more(clocks, driver: WakeFile):
    """It may have looked at the batch before it woke the source: that one does not count."""
    one = waiting(driver)
    one.begin()
    one.end()
    driver.wake()
    one.begin()
    assert one.is_over()


def test_looks_become_rare_while_nothing_comes_and_are_many_again_after_news(clocks: Clocks):
    one = Waiting(INTERVAL_MS, LONGEST_MS, False)
    pauses = []
    for has_news in (True, False):
        one.polled(has_news)
    pauses.append(one.pause_s())
    for _ in range(2):
        clocks.sleep(0.5)
        one.polled(False)
        pauses.append(one.pause_s())
    clocks.sleep(60)
    one.polled(False)
    pauses.append(one.pause_s())
    one.polled(True)
    one.polled(False)
    pauses.append(one.pause_s())
    assert pauses == pytest.approx([0.002, 0.005, 0.01, 0.025, 0.002])


def test_the_file_is_gone_as_soon_as_both_have_it(driver: WakeFile):
    source = WakeFile.open(str(driver.path))
    assert source is not None
    assert driver.is_open
    driver.delete()
    driver.delete()
    driver.due_ms = 5
    assert (source.due_ms, driver.path.exists()) == (5, False)
