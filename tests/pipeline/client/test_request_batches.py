"""Times at which batches of requests are written: shortly before the coordinator polls."""

from __future__ import annotations

import pytest

from group_coordinator.pipeline.client.request_batches import (
    MIN_INTERVAL_MS,
    SAFETY_MARGIN_MS,
    PollEstimator,
    WritePacer,
)

LINGERS_UNTIL = 10_000.0


def estimate(*times: float) -> float | None:
    estimator = PollEstimator()
    expected = [estimator.on_answers(time) for time in times]
    return expected[-1]


def written(pacer: WritePacer, at: float, took_ms: float = 0) -> None:
    pacer.batch_taken(at)
    pacer.batch_written(at + took_ms)


# --- the estimate of the next poll --------------------------------------------------------------


def test_next_poll_is_estimated_from_the_shorter_intervals() -> None:
    assert estimate(0, 100, 200) is None, "two intervals are too few"
    assert estimate(0, 100, 200, 300) == 400
    assert estimate(0, 90, 190, 390, 490, 1_490) == 1_490 + 100


def test_old_intervals_do_not_change_the_estimate() -> None:
    times = [0.0, 10, 20, 30] + [30.0 + 200 * number for number in range(1, 9)]
    assert estimate(*times) == times[-1] + 200


def test_pause_without_requests_is_not_an_interval() -> None:
    estimator = PollEstimator()
    for time in (0, 100, 200, 300):
        estimator.on_answers(time)
    estimator.pause()
    assert estimator.on_answers(5_000) == 5_100


# --- the times of batches -----------------------------------------------------------------------


def test_batch_lingers_without_a_reader() -> None:
    assert WritePacer().ready_at(LINGERS_UNTIL) == LINGERS_UNTIL


def test_batch_is_written_shortly_before_the_next_poll() -> None:
    pacer = WritePacer()
    written(pacer, at=0, took_ms=7)
    pacer.on_poll(300)
    assert pacer.ready_at(LINGERS_UNTIL) == 300 - 7 - SAFETY_MARGIN_MS
    assert pacer.ready_at(lingers_until=200) == 200, "the linger is the longest wait"


def test_poll_without_requests_makes_the_next_batch_due_at_once() -> None:
    pacer = WritePacer()
    written(pacer, at=0)
    pacer.on_poll(300)
    pacer.on_poll(600)
    assert pacer.ready_at(LINGERS_UNTIL) == MIN_INTERVAL_MS, (
        "at once, but after the minimum interval"
    )
    written(pacer, at=400)
    assert pacer.ready_at(LINGERS_UNTIL) == 600 - SAFETY_MARGIN_MS, (
        "only once: then the poll finds a batch"
    )


def test_poll_without_an_estimate_makes_the_batch_due_at_once() -> None:
    pacer = WritePacer()
    written(pacer, at=0)
    pacer.on_poll(None)
    assert pacer.ready_at(LINGERS_UNTIL) == MIN_INTERVAL_MS
    written(pacer, at=100)
    assert pacer.ready_at(LINGERS_UNTIL) == LINGERS_UNTIL


def test_late_poll_doubles_the_interval_between_batches() -> None:
    pacer = WritePacer()
    written(pacer, at=0)
    pacer.on_poll(300)
    times = []
    for _ in range(4):
        times.append(pacer.ready_at(LINGERS_UNTIL))
        written(pacer, at=times[-1])
    first = 300 - SAFETY_MARGIN_MS
    assert times == [first, first + 25, first + 25 + 50, first + 25 + 50 + 100]


def test_hasten_forgets_the_next_poll() -> None:
    pacer = WritePacer()
    written(pacer, at=0)
    pacer.on_poll(300)
    pacer.hasten()
    assert pacer.ready_at(LINGERS_UNTIL) == MIN_INTERVAL_MS
    written(pacer, at=100)
    assert pacer.ready_at(LINGERS_UNTIL) == LINGERS_UNTIL


@pytest.mark.parametrize("next_poll_at", [None, 300])
def test_batches_keep_the_minimum_interval(next_poll_at: float | None) -> None:
    """Each commit is a file for every reader."""
    pacer = WritePacer()
    written(pacer, at=290)
    pacer.on_poll(next_poll_at)
    assert pacer.ready_at(LINGERS_UNTIL) == 290 + MIN_INTERVAL_MS
