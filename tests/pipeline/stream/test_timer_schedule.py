"""No timer is looked at later than if the stream looked at all of them every resolution."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from group_coordinator.pipeline.stream.offset import Planned
from group_coordinator.pipeline.stream.timer_schedule import (
    HORIZON_MS,
    NEVER_MS,
    TimerSchedule,
    restored_schedule,
    ticks_to_text,
    timer_of,
    wake_at,
)

RESOLUTION_MS = 500
LONGEST_MS = 10_000
DAY_MS = 86_400_000

DEADLINES = st.one_of(
    st.none(),
    st.integers(-5_000, 60_000),
    st.integers(HORIZON_MS // 2 - 3, HORIZON_MS // 2 + 3),
    st.integers(0, 7 * DAY_MS),
)
# What requests do to groups some time after the batch before; now and then a restart after a run
# that was killed or stopped, a batch that is run again, and a clock that is set back or forward.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 30_000), st.dictionaries(st.sampled_from("abc"), DEADLINES)),
        st.sampled_from(["killed", "stopped", "again"]),
        st.integers(-40_000, 40_000),
    ),
    max_size=12,
)


class Stream:
    """Spark's timers, and a source that begins batches as `TimerSchedule` says.

    A group that is called keeps its deadline until that has come, and then has none.
    """

    def __init__(self, most_groups: int) -> None:
        self.now = 1_000_000
        self.deadlines: dict[str, int] = {}
        self.timers: dict[str, int] = {}
        self.due: dict[str, int] = {}
        self.batches = 0
        self.batch_ms = self.now
        self.told: list[tuple[int | None, bytes]] = []
        self.is_exact = most_groups >= len("abc")
        self.schedule = TimerSchedule(RESOLUTION_MS, 0, most_groups)

    def restart(self, stored: str | None) -> None:
        """Begin a run on the streaming checkpoint of one that has kept this of its ticks."""
        self.schedule = restored_schedule(
            Planned(self.batches, ""), stored, RESOLUTION_MS, self.now
        )
        self.is_exact = False
        # A clock that was set back may have left timers behind the horizon (LONGEST_MS).
        self.due = {name: due for name, due in self.due.items() if due <= self.now + HORIZON_MS}

    def set_clock(self, by: int) -> None:
        """Timers stay where they are: what is due by the clock's step alone is due from now on."""
        self.now += by
        self.due = {name: max(due, self.now + 1) for name, due in self.due.items()}

    def batch(self, asked: dict[str, int | None]) -> None:
        """A batch of the time that it is now: of these groups, and of those whose timer is due."""
        due = {name for name, timer in self.timers.items() if timer < self.now}
        self.batches += 1
        self.batch_ms = self.now
        self.told = []
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
                self.told.append((wake, timer_of(name)))
            else:
                self.told.append((None, timer_of(name)))
        self.tell()

    def tell(self) -> None:
        """The last batch's outputs reach the driver."""
        for wake, timer in self.told:
            self.schedule.set_timer(wake, timer)
        self.schedule.drop_reached(self.batch_ms)
        if self.schedule.next_ms():
            assert self.batch_ms < self.schedule.next_ms()
            for due in self.due.values():
                assert self.schedule.next_ms() < due + RESOLUTION_MS
        if self.is_exact:
            ticks = {-(-(timer + 1) // RESOLUTION_MS) for timer in self.timers.values()}
            assert len(self.schedule) <= len(ticks), "no tick is left behind"
            assert self.schedule.next_ms() // RESOLUTION_MS in ticks | {
                0,
                NEVER_MS // RESOLUTION_MS,
            }

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
        at = max(self.now + RESOLUTION_MS, self.schedule.next_ms())
        return min(at, self.now + LONGEST_MS)


@given(STEPS, st.sampled_from([0, 1, 2, 100]))
@example([(0, {"a": 10_000, "b": 50_000}), (0, {})], 100)
@example([(0, {"a": HORIZON_MS // 2 + 1, "b": HORIZON_MS})], 100)
@example([(0, {"a": 20_000}), "killed", (0, {"b": 40_000})], 100)
@example([(0, {"a": 20_000}), "stopped", (0, {"b": 40_000})], 100)
@example([(0, {"a": 20_000}), "killed", "stopped", (0, {"b": 40_000})], 100)
@example([(0, {"a": 20_000}), "stopped", "again", (0, {"b": 40_000})], 100)
@example([(0, {"a": 20_000, "b": 20_000}), (0, {"a": 50_000}), "again", (0, {"a": None})], 100)
@example([(0, {"a": 20_000, "b": 20_000}), (0, {"a": 50_000})], 1)
@example([(0, {"a": 20_000}), 30_000, (0, {}), -30_000, (0, {"b": 10_000}), (0, {"a": 5_000})], 9)
def test_no_timer_is_looked_at_later_than_a_resolution_after_it_is_due(steps, most_groups):
    """However many groups are told apart."""
    stream = Stream(most_groups)
    for step in steps:
        if step == "killed":
            stream.restart(None)
        elif step == "stopped":
            stream.restart(ticks_to_text(stream.schedule, stream.batches))
        elif step == "again":
            stream.tell()
        elif isinstance(step, int):
            stream.set_clock(step)
        else:
            after, asked = step
            stream.wait(stream.now + after)
            stream.batch(asked)
    stream.wait(stream.now + 60_000)


def test_a_group_that_heartbeats_leaves_no_tick_behind():
    """Each heartbeat sets a session of 45 s anew: a look at the one before would find nothing."""
    schedule = TimerSchedule(RESOLUTION_MS)
    for now in range(0, 60_000, 3_000):
        schedule.set_timer(now + 45_000, timer_of("g"))
        schedule.drop_reached(now)
        assert (schedule.next_ms(), len(schedule)) == (now + 45_000, 1)


def test_a_group_without_a_timer_leaves_no_tick_behind():
    schedule = TimerSchedule(RESOLUTION_MS)
    schedule.set_timer(10_000, timer_of("g"))
    schedule.set_timer(None, timer_of("g"))
    assert schedule.next_ms() == NEVER_MS
    schedule.set_timer(None, timer_of("unheard of"))
    assert schedule.next_ms() == NEVER_MS


def test_a_tick_stays_as_long_as_any_group_waits_for_it():
    schedule = TimerSchedule(RESOLUTION_MS)
    for group_id in "ab":
        schedule.set_timer(10_000, timer_of(group_id))
    schedule.set_timer(20_000, timer_of("a"))
    assert schedule.next_ms() == 10_000
    schedule.set_timer(20_000, timer_of("b"))
    assert schedule.next_ms() == 20_000


def test_a_group_that_tells_twice_waits_once():
    """A batch that is run again tells what it told: then the other group's tick must stay."""
    schedule = TimerSchedule(RESOLUTION_MS)
    for group_id in "abba":
        schedule.set_timer(10_000, timer_of(group_id))
    schedule.set_timer(None, timer_of("a"))
    assert schedule.next_ms() == 10_000
    schedule.set_timer(None, timer_of("b"))
    assert schedule.next_ms() == NEVER_MS


def test_a_tick_of_nobody_stays_until_a_batch_reaches_it():
    schedule = TimerSchedule(RESOLUTION_MS)
    schedule.set_timer(10_000)
    schedule.set_timer(10_000, timer_of("g"))
    schedule.set_timer(None, timer_of("g"))
    schedule.drop_reached(9_999)
    assert schedule.next_ms() == 10_000


def test_beyond_so_many_groups_ticks_stay_until_a_batch_reaches_them():
    schedule = TimerSchedule(RESOLUTION_MS, most_groups=1)
    for wake in (10_000, 20_000):
        for group_id in ("first", "second"):
            schedule.set_timer(wake, timer_of(group_id))
    assert schedule.next_ms() == 10_000, "the second one's"
    schedule.set_timer(None, timer_of("first"))
    schedule.set_timer(30_000, timer_of("third"))
    schedule.set_timer(40_000, timer_of("third"))
    schedule.drop_reached(20_000)
    assert (schedule.next_ms(), len(schedule)) == (40_000, 1), "there is room for the third one"


def test_a_group_takes_nothing_from_a_tick_that_came_after_its_own():
    """The clock was set back: another group's timer is due when the first one's was."""
    schedule = TimerSchedule(RESOLUTION_MS)
    schedule.set_timer(10_000, timer_of("silent"))
    schedule.drop_reached(10_000)
    schedule.set_timer(10_000, timer_of("other"))
    schedule.drop_reached(5_000)
    schedule.set_timer(None, timer_of("silent"))
    assert schedule.next_ms() == 10_000


def test_ids_have_digests_of_their_own():
    ids = ["", "g", "G", "g" * 70_000, "\ud800", "ü"]
    assert len({timer_of(each) for each in ids}) == len(ids)
    assert {len(timer_of(each)) for each in ids} == {16}


def test_each_group_of_a_batch_has_its_own_tick():
    """The look at the first one must not forget the other."""
    schedule = TimerSchedule(RESOLUTION_MS)
    schedule.set_timer(10_000)
    schedule.set_timer(50_000)
    assert schedule.next_ms() == 10_000
    schedule.drop_reached(10_000)
    assert schedule.next_ms() == 50_000
    schedule.drop_reached(50_000)
    assert schedule.next_ms() == NEVER_MS


def test_a_batch_before_a_tick_leaves_it():
    """By the batch's own time: the clock may have been set back since the source returned."""
    schedule = TimerSchedule(RESOLUTION_MS)
    schedule.set_timer(10_000)
    schedule.drop_reached(9_999)
    assert schedule.next_ms() == 10_000


def test_a_week_is_awaited_in_steps_of_a_quarter_of_an_hour_or_more():
    now, calls = 0, 0
    while (wake := wake_at("g", 7 * DAY_MS, now)) < 7 * DAY_MS:
        assert HORIZON_MS / 2 - 10_000 <= wake - now <= HORIZON_MS
        now, calls = wake, calls + 1
    assert wake == 7 * DAY_MS
    assert calls < 7 * DAY_MS / (HORIZON_MS / 2)


def test_twenty_thousand_groups_are_few_ticks_and_not_one():
    """They were loaded together and expire together; meanwhile they are not called together."""
    schedule = TimerSchedule(RESOLUTION_MS)
    at: dict[int, int] = {}
    for number in range(20_000):
        wake = wake_at(f"g{number}", 7 * DAY_MS, 0)
        schedule.set_timer(wake, timer_of(f"g{number}"))
        at[wake] = at.get(wake, 0) + 1
    assert len(schedule) == len(at) <= HORIZON_MS // 2 // 10_000 + 1
    assert max(at.values()) < 400


def test_after_a_restart_everything_is_known_once_the_horizon_is_reached():
    schedule = TimerSchedule(RESOLUTION_MS, unknown_until=HORIZON_MS)
    schedule.set_timer(HORIZON_MS + 60_000)
    schedule.drop_reached(HORIZON_MS - 1)
    assert schedule.next_ms() == 0, "some group's timer may be due that this run has not called yet"
    schedule.drop_reached(HORIZON_MS)
    assert schedule.next_ms() == HORIZON_MS + 60_000
