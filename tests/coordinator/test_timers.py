"""The order of timers, and their restart."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group import coordinator
from group_coordinator.coordinator.group.classic_group import (
    ClassicGroup,
    ClassicGroupMember,
    DelayedJoin,
    ParkedRequest,
)
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.coordinator.group.timers import (
    TimerKind,
    due_timers,
    is_running,
    next_deadline,
    restart_timers,
)
from tests.context import GROUP_ID, INITIAL_DELAY_MS, TWO_STEP, Context


def member(
    member_id: str, deadline: int | None, session: int = 500, new: bool = False
) -> ClassicGroupMember:
    return ClassicGroupMember(
        member_id, None, "", "", 2000, session, (), is_new=new, session_deadline=deadline
    )


def group(*members: ClassicGroupMember, **fields: object) -> ClassicGroup:
    found = ClassicGroup(GROUP_ID, state=GroupState.STABLE)
    for one in members:
        found.add(one)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def test_a_group_without_timers_is_not_called() -> None:
    assert next_deadline(group()) is None
    assert due_timers(group(member("one", None)), 1_000) == []


def test_timers_fire_in_the_order_of_their_deadlines_whatever_their_kind() -> None:
    found = group(
        member("one", 40),
        member("two", 30),
        pending_joins={"pending": 20},
        sync_deadline=10,
        delayed_join=DelayedJoin(5),
    )
    assert next_deadline(found) == 5
    assert due_timers(found, 4) == []
    assert due_timers(found, 30) == [
        (5, TimerKind.DELAYED_JOIN, ""),
        (10, TimerKind.PENDING_SYNC, ""),
        (20, TimerKind.PENDING_JOIN, "pending"),
        (30, TimerKind.SESSION, "two"),
    ]


def test_of_timers_due_together_sessions_come_first_in_the_order_of_joining() -> None:
    found = group(
        member("b", 10),
        member("a", 10),
        pending_joins={"z": 10, "y": 10},
        sync_deadline=10,
        delayed_join=DelayedJoin(10),
    )
    assert [timer[1:] for timer in due_timers(found, 10)] == [
        (TimerKind.SESSION, "b"),
        (TimerKind.SESSION, "a"),
        (TimerKind.PENDING_JOIN, "z"),
        (TimerKind.PENDING_JOIN, "y"),
        (TimerKind.PENDING_SYNC, ""),
        (TimerKind.DELAYED_JOIN, ""),
    ]


def test_a_timer_that_was_stopped_or_started_afresh_does_not_run() -> None:
    found = group(
        member("one", 10),
        pending_joins={"pending": 10},
        sync_deadline=10,
        delayed_join=DelayedJoin(10),
    )
    due = due_timers(found, 10)
    assert all(is_running(found, timer) for timer in due)
    found.members["one"].session_deadline = None
    found.pending_joins["pending"] = 11
    found.sync_deadline = 12
    found.delayed_join = None
    assert not any(is_running(found, timer) for timer in due)
    found.remove("one")
    found.remove("pending")
    assert not any(is_running(found, timer) for timer in due)


def test_a_timer_that_an_earlier_one_stopped_does_not_fire() -> None:
    """Both are due: the follower's session ends the rebalance that the delayed join waits for."""
    ctx = Context()
    leader, _ = ctx.stable_pair()
    ctx.join(member_id=leader.member_id)
    assert ctx.group is not None
    ctx.now += 10_000
    decision = ctx.begin_decision()
    kinds = [kind for _, kind, _ in due_timers(ctx.group, ctx.now)]
    assert kinds == [TimerKind.SESSION, TimerKind.SESSION, TimerKind.DELAYED_JOIN]
    assert len(list(ctx.coordinator.fire_due(decision))) == 1
    assert [each.error_code for each in decision.responses] == [0]
    assert list(ctx.group.members) == [leader.member_id]


def test_sessions_that_end_together_are_sorted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for the earliest timer after each of n would take n times n steps."""
    found = group(*(member(f"member {number}", 10) for number in range(20)))
    looks = []
    monkeypatch.setattr(
        coordinator, "due_timers", lambda *given: looks.append(given) or due_timers(*given)
    )
    decision = Context().coordinator.begin_decision(GROUP_ID, found, 10)
    assert len(list(Context().coordinator.fire_due(decision))) == 20
    assert [event.event for event in decision.events].count("member_expired") == 20
    assert found.state is GroupState.EMPTY
    assert len(looks) == 2


def test_a_timer_that_is_not_due_does_not_fire() -> None:
    ctx = Context()
    ctx.stable_group()
    assert ctx.group is not None
    deadline = next_deadline(ctx.group)
    assert deadline is not None
    ctx.now = deadline - 1
    decision = ctx.begin_decision()
    assert list(ctx.coordinator.fire_due(decision)) == []
    assert (decision.events, ctx.deadline) == ([], deadline)
    ctx.now = deadline
    decision = ctx.begin_decision()
    assert len(list(ctx.coordinator.fire_due(decision))) == 1
    assert decision.events[0].event == "member_expired"


def test_timers_fire_one_at_a_time() -> None:
    ctx = Context()
    ctx.stable_pair()
    assert ctx.group is not None
    ctx.now += 10_000
    decision = ctx.begin_decision()
    next(ctx.coordinator.fire_due(decision))
    assert [event.event for event in decision.events].count("member_expired") == 1


def test_an_id_given_out_and_never_used_lapses() -> None:
    ctx = Context()
    ctx.stable_group(session_ms=10_000)
    pending = ctx.join(version=TWO_STEP, session_ms=100)
    assert ctx.group is not None
    ctx.advance(99)
    assert list(ctx.group.pending_joins) == [pending.member_id]
    ctx.advance(1)
    assert ctx.group.pending_joins == {}
    assert ctx.state is GroupState.STABLE


# --- a coordinator that was suspended -------------------------------------------------------------


def test_sessions_start_afresh() -> None:
    found = group(member("one", 100), member("two", 400, session=900))
    restart_timers(found, 1000)
    assert [one.session_deadline for one in found.members.values()] == [1500, 1900]


def test_a_session_that_is_not_timed_stays_so() -> None:
    found = group(member("one", None))
    found.members["one"].awaiting_join = ParkedRequest("request", 9)
    restart_timers(found, 1000)
    assert next_deadline(found) is None


def test_a_first_join_that_waits_keeps_its_longer_time() -> None:
    found = group(member("one", 100, new=True))
    restart_timers(found, 1000)
    assert found.members["one"].session_deadline == 1000 + 300_000


@pytest.mark.parametrize(("deadline", "restarted"), [(100, 3000), (9000, 9000)])
def test_a_rebalance_has_its_timeout_again_and_never_less_than_was_left(
    deadline: int, restarted: int
) -> None:
    found = group(member("one", None), delayed_join=DelayedJoin(deadline), sync_deadline=deadline)
    restart_timers(found, 1000)
    assert found.delayed_join == DelayedJoin(restarted)
    assert found.sync_deadline == restarted


def test_the_initial_delay_starts_again() -> None:
    found = group(member("one", None), delayed_join=DelayedJoin(100, True, 50, 1950))
    restart_timers(found, 1000)
    assert found.delayed_join == DelayedJoin(1050, True, 50, 1950)


def test_half_finished_joins_are_given_a_session() -> None:
    found = group(member("one", None), pending_joins={"pending": 100, "later": 9000})
    restart_timers(found, 1000)
    assert found.pending_joins == {"pending": 1500, "later": 9000}


def test_after_a_restart_the_conversation_goes_on() -> None:
    ctx = Context()
    leader = ctx.two_step_join()
    ctx.now += 10_000
    assert ctx.group is not None
    restart_timers(ctx.group, ctx.now)
    ctx.advance(INITIAL_DELAY_MS)
    assert leader.generation == 1
