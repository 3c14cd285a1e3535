"""Requests to a store are side by side: in order, not too many, and none after an error."""

from __future__ import annotations

import threading
import time

import pytest

from group_coordinator.pipeline.delta.store_files import side_by_side


def test_so_many_are_under_way_at_once_and_come_in_their_order() -> None:
    together = threading.Barrier(3, timeout=30)

    def work(number: int) -> int:
        # Nobody goes on before three are here.
        together.wait()
        return 10 * number

    assert list(side_by_side(work, range(6), most=3)) == [0, 10, 20, 30, 40, 50]


def test_no_more_are_under_way_than_may_be() -> None:
    lock = threading.Lock()
    now, seen = 0, 0

    def work(number: int) -> int:
        nonlocal now, seen
        with lock:
            now += 1
            seen = max(seen, now)
        time.sleep(0.001)
        with lock:
            now -= 1
        return number

    assert list(side_by_side(work, range(40), most=4)) == [*range(40)]
    assert seen <= 4


def test_an_error_comes_in_its_turn_and_later_items_are_left_alone() -> None:
    worked: list[int] = []

    def work(number: int) -> int:
        worked.append(number)
        if number == 2:
            raise FileNotFoundError("2 is gone")
        return number

    found = side_by_side(work, range(100), most=2)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(FileNotFoundError, match="2 is gone"):
        next(found)
    assert len(worked) <= 5


def test_who_stops_reading_ends_it() -> None:
    found = side_by_side(lambda number: number, range(100), most=2)
    assert next(found) == 0
    found.close()  # type: ignore[attr-defined]
    assert not [each for each in threading.enumerate() if each.name.startswith("side-by-side")]


def test_of_nothing_comes_nothing() -> None:
    assert list(side_by_side(str, [])) == []
