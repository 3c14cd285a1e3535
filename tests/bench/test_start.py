"""Starts, as the benchmark of starts counts them."""

from __future__ import annotations

from tests.bench.running import COORDINATOR, FLOOR
from tests.bench.start import Started, StartReport, summary


def test_the_median_start_of_the_coordinator_is_held_to_the_aim() -> None:
    slow = summary(FLOOR, [Started(12.0, 15.0), Started(14.0, 17.0)])
    found = summary(COORDINATOR, [Started(7.0, 9.0), Started(30.0, 12.0), Started(7.5, 10.0)])
    assert (found.starts, found.fastest, found.middle, found.slowest) == (3, 7.0, 7.5, 30.0)
    assert found.cpu_s == 10.0
    (aim,) = StartReport([slow, found]).aims()
    assert (aim.found, aim.met) == (7.5, True)
    (aim,) = StartReport([slow, summary(COORDINATOR, [Started(8.1, 9.0)])]).aims()
    assert not aim.met
