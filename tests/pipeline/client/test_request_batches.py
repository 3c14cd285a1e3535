"""When a client's requests are written: shortly before the coordinator looks for them."""

from __future__ import annotations

import pytest

from group_coordinator.pipeline.client.request_batches import (
    MIN_INTERVAL_MS,
    SAFETY_MARGIN_MS,
    PollEstimator,
    WritePacer,
)

LINGERS_UNTIL = 10_000.0


def beating(*times: float) -> float | None:
    estimator = PollEstimator()
    expected = [estimator.on_answers(time) for time in times]
    return expected[-1]


def written(pacer: WritePacer, at: float, took_ms: float = 0) -> None:
    pacer.batch_taken(at)
    pacer.batch_written(at + took_ms)


# --- the rhythm of answers ----------------------------------------------------------------------


def test_the_next_answers_are_expected_after_one_of_the_shorter_intervals() -> None:
    assert beating(0, 100, 200) is None, "two intervals tell nothing"
    assert beating(0, 100, 200, 300) == 400
    assert beating(0, 90, 190, 390, 490, 1_490) == 1_490 + 100


def test_intervals_of_long_ago_are_forgotten() -> None:
    times = [0.0, 10, 20, 30] + [30.0 + 200 * number for number in range(1, 9)]
    assert beating(*times) == times[-1] + 200


def test_a_time_in_which_nothing_was_asked_is_no_interval() -> None:
    estimator = PollEstimator()
    for time in (0, 100, 200, 300):
        estimator.on_answers(time)
    estimator.pause()
    assert estimator.on_answers(5_000) == 5_100


# --- the pace of batches ------------------------------------------------------------------------


def test_without_a_reader_a_batch_lingers() -> None:
    assert WritePacer().ready_at(LINGERS_UNTIL) == LINGERS_UNTIL


def test_a_batch_is_written_before_the_reader_reads() -> None:
    pacer = WritePacer()
    written(pacer, at=0, took_ms=7)
    pacer.on_poll(300)
    assert pacer.ready_at(LINGERS_UNTIL) == 300 - 7 - SAFETY_MARGIN_MS
    assert pacer.ready_at(lingers_until=200) == 200, "the linger is the longest wait"


def test_a_reader_that_found_nothing_goes_on_looking() -> None:
    pacer = WritePacer()
    written(pacer, at=0)
    pacer.on_poll(300)
    pacer.on_poll(600)
    assert pacer.ready_at(LINGERS_UNTIL) == MIN_INTERVAL_MS, "at once, but for the batch before"
    written(pacer, at=400)
    assert pacer.ready_at(LINGERS_UNTIL) == 600 - SAFETY_MARGIN_MS, (
        "once: then it has something to read"
    )


def test_a_reader_without_a_rhythm_is_met_now() -> None:
    pacer = WritePacer()
    written(pacer, at=0)
    pacer.on_poll(None)
    assert pacer.ready_at(LINGERS_UNTIL) == MIN_INTERVAL_MS
    written(pacer, at=100)
    assert pacer.ready_at(LINGERS_UNTIL) == LINGERS_UNTIL


def test_a_late_reader_is_met_again_and_again_but_less_and_less_often() -> None:
    pacer = WritePacer()
    written(pacer, at=0)
    pacer.on_poll(300)
    times = []
    for _ in range(4):
        times.append(pacer.ready_at(LINGERS_UNTIL))
        written(pacer, at=times[-1])
    first = 300 - SAFETY_MARGIN_MS
    assert times == [first, first + 25, first + 25 + 50, first + 25 + 50 + 100]


def test_who_hastens_has_nobody_to_meet() -> None:
    pacer = WritePacer()
    written(pacer, at=0)
    pacer.on_poll(300)
    pacer.hasten()
    assert pacer.ready_at(LINGERS_UNTIL) == MIN_INTERVAL_MS
    written(pacer, at=100)
    assert pacer.ready_at(LINGERS_UNTIL) == LINGERS_UNTIL


@pytest.mark.parametrize("next_poll_at", [None, 300])
def test_batches_keep_their_distance(next_poll_at: float | None) -> None:
    """Each commit is a file for every reader."""
    pacer = WritePacer()
    written(pacer, at=290)
    pacer.on_poll(next_poll_at)
    assert pacer.ready_at(LINGERS_UNTIL) == 290 + MIN_INTERVAL_MS
