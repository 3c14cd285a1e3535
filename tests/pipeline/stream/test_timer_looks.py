"""No timer is looked at later than if the stream looked at all of them every resolution."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.stream.timer_looks import HORIZON_MS, NEVER_MS, TimerLooks, wake_at

RESOLUTION_MS = 500
LONGEST_MS = 10_000
DAY_MS = 86_400_000

DEADLINES = st.one_of(
    st.none(),
    st.integers(-5_000, 60_000),
    st.integers(HORIZON_MS // 2 - 3, HORIZON_MS // 2 + 3),
    st.integers(0, 7 * DAY_MS),
)
# What requests do to groups some time after the batch before, and a restart now and then.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 30_000), st.dictionaries(st.sampled_from("abc"), DEADLINES)),
        st.just("restart"),
    ),
    max_size=12,
)


class Stream:
    """Spark's timers, and a source that begins batches as `TimerLooks` says.

    A group that is called keeps its deadline until that has come, and then has none.
    """

    def __init__(self) -> None:
        self.now = 1_000_000
        self.deadlines: dict[str, int] = {}
        self.timers: dict[str, int] = {}
        self.due: dict[str, int] = {}
        self.looks = TimerLooks(RESOLUTION_MS)

    def restart(self) -> None:
        self.looks = TimerLooks(RESOLUTION_MS, self.now + HORIZON_MS)

    def batch(self, asked: dict[str, int | None]) -> None:
        """A batch of the time that it is now: of these groups, and of those whose timer is due."""
        due = {name for name, timer in self.timers.items() if timer < self.now}
        for name in due | asked.keys():
            if name in asked:
                deadline = asked[name]
                self.deadlines[name] = self.now + deadline if deadline is not None else 0
            elif self.deadlines[name] <= self.now:
                self.deadlines[name] = 0
            self.timers.pop(name, None)
            self.due.pop(name, None)
            if self.deadlines[name]:
                wake = wake_at(name, self.deadlines[name], self.now)
                self.timers[name] = wake - 1
                # A deadline that has passed is looked at in the next batch, as ever.
                self.due[name] = max(self.deadlines[name], self.now + 2)
                self.looks.told(wake)
        self.looks.looked(self.now)
        if self.looks.next_ms():
            assert self.now < self.looks.next_ms()
            for due in self.due.values():
                assert self.looks.next_ms() < due + RESOLUTION_MS

    def wait(self, until: int) -> None:
        """Let time pass without requests."""
        while (at := self.next_batch()) < until:
            self.now = at
            for due in self.due.values():
                assert self.now < due + RESOLUTION_MS
            self.batch({})
        self.now = until

    def next_batch(self) -> int:
        """When the source's wait is over that begins now (`pipeline.stream.waiting`)."""
        at = max(self.now + RESOLUTION_MS, self.looks.next_ms())
        return min(at, self.now + LONGEST_MS)


@given(STEPS)
@example([(0, {"a": 10_000, "b": 50_000}), (0, {})])
@example([(0, {"a": HORIZON_MS // 2 + 1, "b": HORIZON_MS})])
@example([(0, {"a": 20_000}), "restart", (0, {"b": 40_000})])
def test_no_timer_is_looked_at_later_than_a_resolution_after_it_is_due(steps):
    stream = Stream()
    for step in steps:
        if step == "restart":
            stream.restart()
        else:
            after, asked = step
            stream.wait(stream.now + after)
            stream.batch(asked)
    stream.wait(stream.now + 60_000)


def test_each_group_of_a_batch_has_its_own_tick():
    """The look at the first one must not forget the other."""
    looks = TimerLooks(RESOLUTION_MS)
    looks.told(10_000)
    looks.told(50_000)
    assert looks.next_ms() == 10_000
    looks.looked(10_000)
    assert looks.next_ms() == 50_000
    looks.looked(50_000)
    assert looks.next_ms() == NEVER_MS


def test_a_batch_before_a_tick_leaves_it():
    """By the batch's own time: the clock may have been set back since the source returned."""
    looks = TimerLooks(RESOLUTION_MS)
    looks.told(10_000)
    looks.looked(9_999)
    assert looks.next_ms() == 10_000


def test_a_week_is_awaited_in_steps_of_a_quarter_of_an_hour_or_more():
    now, calls = 0, 0
    while (wake := wake_at("g", 7 * DAY_MS, now)) < 7 * DAY_MS:
        assert HORIZON_MS / 2 - 10_000 <= wake - now <= HORIZON_MS
        now, calls = wake, calls + 1
    assert wake == 7 * DAY_MS
    assert calls < 7 * DAY_MS / (HORIZON_MS / 2)


def test_twenty_thousand_groups_are_few_ticks_and_not_one():
    """They were loaded together and expire together; meanwhile they are not called together."""
    looks = TimerLooks(RESOLUTION_MS)
    at: dict[int, int] = {}
    for number in range(20_000):
        wake = wake_at(f"g{number}", 7 * DAY_MS, 0)
        looks.told(wake)
        at[wake] = at.get(wake, 0) + 1
    assert len(looks) == len(at) <= HORIZON_MS // 2 // 10_000 + 1
    assert max(at.values()) < 400


def test_after_a_restart_everything_is_known_once_the_horizon_is_reached():
    looks = TimerLooks(RESOLUTION_MS, unknown_until=HORIZON_MS)
    looks.told(HORIZON_MS + 60_000)
    looks.looked(HORIZON_MS - 1)
    assert looks.next_ms() == 0, "some group's timer may be due that this run has not called yet"
    looks.looked(HORIZON_MS)
    assert looks.next_ms() == HORIZON_MS + 60_000
