"""What a run keeps of its ticks is believed by the next one only if nothing has happened since."""

from __future__ import annotations

import pytest

from group_coordinator.pipeline.stream.offset import Planned
from group_coordinator.pipeline.stream.timer_schedule import (
    HORIZON_MS,
    NEVER_MS,
    TimerSchedule,
    restored_schedule,
    ticks_to_text,
    timer_of,
)

RESOLUTION_MS = 500
NOW = 1_000_000


def schedule(unknown_until: int = 0, *wakes: int) -> TimerSchedule:
    found = TimerSchedule(RESOLUTION_MS, unknown_until)
    for number, wake in enumerate(wakes):
        found.set_timer(wake, timer_of(f"g{number}"))
    return found


def after(text: str | None, batch_id: int = 7, resolution_ms: int = RESOLUTION_MS) -> TimerSchedule:
    return restored_schedule(Planned(batch_id, "{}"), text, resolution_ms, NOW)


def test_a_run_goes_on_with_the_ticks_of_the_run_before():
    found = after(ticks_to_text(schedule(0, NOW + 45_000, NOW + 600_100), 7))
    assert (found.next_ms(), found.unknown_until) == (NOW + 45_000, 0)
    found.set_timer(NOW + 90_000, timer_of("g0"))
    assert found.next_ms() == NOW + 45_000, "whose tick it is is not kept"
    found.drop_reached(NOW + 90_000)
    assert found.next_ms() == NOW + 600_500
    found.drop_reached(NOW + 600_500)
    assert found.next_ms() == NEVER_MS


def test_what_the_run_before_did_not_know_is_not_known():
    found = after(ticks_to_text(schedule(NOW + 60_000, NOW + 45_000), 7))
    assert found.next_ms() == 0
    found.drop_reached(NOW + 50_000)
    assert found.next_ms() == 0
    found.drop_reached(NOW + 60_000)
    assert found.next_ms() == NEVER_MS


def test_a_tick_that_has_passed_is_looked_at_at_once():
    found = after(ticks_to_text(schedule(0, NOW - 45_000), 7))
    assert found.next_ms() == NOW - 45_000


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        ticks_to_text(schedule(0, NOW), 7)[:-1],
        "[]",
        '{"batch_id":7}',
        ticks_to_text(schedule(0, NOW), 6),
        ticks_to_text(schedule(0, NOW), 8),
    ],
)
def test_a_text_that_is_of_no_use_leaves_all_timers_unknown(text: str | None):
    """None was stored, a part of it was, or a batch was planned since: a run was killed."""
    found = after(text)
    assert (found.next_ms(), found.unknown_until) == (0, NOW + HORIZON_MS)


def test_another_resolution_rounds_otherwise():
    text = ticks_to_text(schedule(0, NOW + 45_000), 7)
    assert after(text, resolution_ms=100).unknown_until == NOW + HORIZON_MS


def test_a_new_streaming_checkpoint_has_no_timers():
    found = restored_schedule(None, ticks_to_text(schedule(0, NOW), 7), RESOLUTION_MS, NOW)
    assert found.next_ms() == NEVER_MS
