"""How each call of the group's function ends: what Spark would otherwise call again for ever."""

from __future__ import annotations

import gc

import msgspec
import pandas as pd
import pytest

from group_coordinator.coordinator.group.batch import BatchResult, GroupOutput
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH, unpack
from group_coordinator.pipeline.stream.stateful import GroupFunction
from group_coordinator.pipeline.stream.timer_schedule import HORIZON_MS, timer_of
from tests.pipeline.rows import output

NOW = 1_000_000


class State:
    """Spark's GroupState, as far as the function uses it."""

    def __init__(self, stored: bytes | None = None, timed_out: bool = False) -> None:
        self.exists = stored is not None
        self.get = (stored,)
        self.hasTimedOut = timed_out
        self.calls: list[tuple[str, object]] = []

    def getCurrentProcessingTimeMs(self) -> int:
        return NOW

    def update(self, value: tuple[bytes]) -> None:
        self.calls.append(("update", value[0]))

    def remove(self) -> None:
        self.calls.append(("remove", None))

    def setTimeoutDuration(self, ms: int) -> None:
        self.calls.append(("timeout", ms))


class Scripted:
    """A machine that gives one result, and keeps what it was asked."""

    def __init__(self, result: BatchResult) -> None:
        self.result = result
        self.asked: list[tuple[str | None, bytes | None, list[str], int]] = []

    def process(self, group_id, state, events, now):
        self.asked.append((group_id, state, events, now))
        return self.result


@pytest.fixture(autouse=True)
def _unfrozen(monkeypatch):
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "collect", lambda: 0)


def call(result: BatchResult, state: State, events: list[str] | None = None):
    machine = Scripted(result)
    frame = pd.DataFrame({"group_id": ["g"] * len(events or []), "events": events or []})
    frames = list(GroupFunction(lambda: machine)(("g",), iter([frame]), state))
    return machine, frames


def packed(micros: int, text: str) -> str:
    return f"{micros:0{KEY_WIDTH}}{text}"


@pytest.mark.parametrize(
    ("result", "state", "calls"),
    [
        (BatchResult(b"s", NOW + 500, None), State(), [("update", b"s"), ("timeout", 499)]),
        (BatchResult(b"s", NOW + 1, None), State(), [("update", b"s"), ("timeout", 1)]),
        (BatchResult(b"s", NOW - 9, None), State(b"o"), [("update", b"s"), ("timeout", 1)]),
        (BatchResult(b"s", None, None), State(b"o"), [("update", b"s")]),
        (BatchResult(None, None, None), State(b"o"), [("remove", None)]),
        (BatchResult(None, None, None), State(), []),
        (BatchResult(b"o", NOW + 9, None, changed=False), State(b"o"), []),
        (
            BatchResult(b"o", NOW + 9, None, changed=False),
            State(b"o", timed_out=True),
            [("update", b"o"), ("timeout", 8)],
        ),
        (BatchResult(b"o", None, None, changed=False), State(b"o", True), [("update", b"o")]),
        (BatchResult(None, None, None), State(b"o", timed_out=True), [("remove", None)]),
    ],
)
def test_a_call_ends_in_exactly_one_way(result, state, calls):
    call(result, state)
    assert state.calls == calls


def test_events_come_in_their_order_and_without_their_keys():
    events = [packed(2, '{"b":1}'), packed(1, '{"z":1}'), packed(2, '{"a":1}')]
    machine, _ = call(BatchResult(None, None, None), State(b"o"), events)
    assert machine.asked == [("g", b"o", ['{"z":1}', '{"a":1}', '{"b":1}'], NOW)]


def test_a_timed_out_call_brings_no_events():
    machine, _ = call(BatchResult(None, None, None), State(b"o", timed_out=True), ["ignored"])
    assert machine.asked[0][2] == []


def test_what_is_said_is_one_row_and_silence_is_none():
    said = output(2)
    _, frames = call(BatchResult(None, None, said), State())
    (frame,) = frames
    assert list(frame.columns) == ["output"]
    assert msgspec.msgpack.decode(frame["output"][0], type=GroupOutput) == said
    _, frames = call(BatchResult(None, None, None), State())
    assert frames == []


@pytest.mark.parametrize(("deadline", "wake"), [(NOW + 500, NOW + 500), (NOW - 9, NOW + 2)])
def test_a_group_that_says_nothing_tells_when_it_is_to_be_called_again(deadline: int, wake: int):
    """Else the driver would not know that a batch must begin then."""
    _, frames = call(BatchResult(b"s", deadline, None), State(b"o", timed_out=True))
    said = msgspec.msgpack.decode(frames[0]["output"][0], type=GroupOutput)
    assert said == GroupOutput([], [], [], [], NOW, wake, timer_of("g"))


@pytest.mark.parametrize(
    ("result", "state", "has_timer_change"),
    [
        (BatchResult(None, None, None), State(b"o"), True),
        (BatchResult(None, None, None), State(b"o", timed_out=True), True),
        (BatchResult(b"s", None, None), State(b"o"), True),
        (BatchResult(None, None, output(1)), State(b"o"), True),
        (BatchResult(b"s", None, output(1)), State(), False),
        (BatchResult(None, None, output(1)), State(), False),
        (BatchResult(b"o", NOW + 9, output(1), changed=False), State(b"o"), False),
    ],
)
def test_a_group_tells_that_its_timer_is_gone_and_nothing_of_one_that_it_left_alone(
    result, state, has_timer_change
):
    """A tick that is dropped though the timer is still there would be a look that never comes."""
    _, frames = call(result, state)
    said = msgspec.msgpack.decode(frames[0]["output"][0], type=GroupOutput)
    assert (said.wake_ms, said.timer) == (None, timer_of("g") if has_timer_change else None)


@pytest.mark.parametrize(
    ("result", "state"),
    [
        (BatchResult(None, None, None), State()),
        (BatchResult(b"s", None, None), State()),
        (BatchResult(b"o", NOW + 9, None, changed=False), State(b"o")),
    ],
)
def test_a_group_without_a_timer_before_and_after_says_nothing(result, state):
    assert call(result, state)[1] == []


def test_a_timer_is_never_further_away_than_the_horizon():
    """After a restart all of them are known once the horizon has passed."""
    state = State()
    _, frames = call(BatchResult(b"s", NOW + 7 * 86_400_000, None), state)
    ((_, duration),) = [each for each in state.calls if each[0] == "timeout"]
    said = msgspec.msgpack.decode(frames[0]["output"][0], type=GroupOutput)
    assert said.wake_ms == NOW + duration + 1
    assert HORIZON_MS // 2 - 10_000 <= duration + 1 <= HORIZON_MS


def test_unpack_orders_by_time_then_text():
    assert unpack([packed(10, "b"), packed(9, "c"), packed(10, "a")]) == ["c", "a", "b"]
