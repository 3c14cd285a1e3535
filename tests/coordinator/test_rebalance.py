"""The rebalance: the members it waits for, its duration, its leader, and the audit log."""

from __future__ import annotations

from itertools import islice

import pytest

from group_coordinator.coordinator.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from tests.context import INITIAL_DELAY_MS, REBALANCE_MS, SUPERSET, TWO_STEP, Call, Context

# Members with sessions longer than all rebalances here.
PATIENT = {"session_ms": 60_000}
STATIC = {"version": TWO_STEP, "protocols": SUPERSET}


def patient_group(*rebalance_timeouts: int) -> tuple[Context, list[Call]]:
    """Return a Stable group of such dynamic members with these rebalance timeouts."""
    ctx = Context(group_max_size=100)
    joins = [ctx.join(**PATIENT, rebalance_ms=ms) for ms in rebalance_timeouts]
    ctx.advance(10 * INITIAL_DELAY_MS)
    for join in joins:
        ctx.sync(join)
    assert ctx.state is GroupState.STABLE
    return ctx, joins


def transitions(ctx: Context) -> list[tuple[str | None, str | None]]:
    return [(e.from_state, e.to_state) for e in ctx.events if e.event == "transition"]


def last_reason(ctx: Context) -> str:
    """Return the reason of the group's last transition."""
    return next(e.reason for e in reversed(ctx.events) if e.event == "transition")


# --- the members that a rebalance waits for -------------------------------------------------------


def test_the_generation_begins_when_everybody_is_back() -> None:
    ctx, (first, second) = patient_group(500, 500)
    newcomer = ctx.join(**PATIENT)
    rejoined = ctx.join(first.member_id, **PATIENT)
    assert newcomer.parked and rejoined.parked
    last = ctx.join(second.member_id, **PATIENT)
    assert {call.generation for call in (newcomer, rejoined, last)} == {2}
    assert {call.response.responded_at for call in (newcomer, rejoined, last)} == {ctx.now}


def test_only_the_leader_is_told_the_members() -> None:
    ctx = Context()
    leader = ctx.join(metadata=b"a")
    follower = ctx.join(metadata=b"b")
    ctx.advance(2 * INITIAL_DELAY_MS)
    assert {m.member_id: m.metadata for m in leader.body.members} == {
        leader.member_id: b"a",
        follower.member_id: b"b",
    }
    assert follower.body.members == ()
    assert follower.body.leader == leader.member_id


def test_the_largest_rebalance_timeout_is_the_group_s() -> None:
    ctx, _ = patient_group(700, 1900, 800)
    newcomer = ctx.join(**PATIENT, rebalance_ms=10)
    started = ctx.now
    ctx.advance(1899)
    assert newcomer.parked
    ctx.advance(1)
    assert newcomer.response.responded_at == started + 1900


def test_the_timeout_is_the_one_the_rebalance_began_with() -> None:
    """A member that joins during the rebalance does not extend it."""
    ctx, _ = patient_group(500)
    first = ctx.join(**PATIENT)
    ctx.advance(100)
    ctx.join(**PATIENT, rebalance_ms=50_000)
    ctx.advance(400)
    assert first.generation == 2


def test_members_that_do_not_come_back_are_dropped() -> None:
    ctx, (leader, lost) = patient_group(500, 500)
    rejoined = ctx.join(leader.member_id, **PATIENT)
    ctx.advance(REBALANCE_MS)
    assert rejoined.generation == 2
    assert ctx.members == [leader.member_id]
    assert ctx.heartbeat(lost, 2).code == ErrorCode.UNKNOWN_MEMBER_ID
    [expired] = [e for e in ctx.events if e.event == "member_expired"]
    assert expired.member_id == lost.member_id
    assert expired.reason == "did not rejoin within the rebalance timeout"


def test_a_dropped_member_s_session_disturbs_nobody_later() -> None:
    """KAFKA-7196: its timer is cancelled with it."""
    ctx = Context()
    leader = ctx.join(**PATIENT)
    ctx.join(session_ms=1000)
    ctx.advance(2 * INITIAL_DELAY_MS)
    ctx.join(leader.member_id, metadata=b"new", **PATIENT)
    ctx.advance(REBALANCE_MS)
    ctx.sync(leader, generation=2)
    ctx.advance(2000)
    assert ctx.state is GroupState.STABLE
    assert ctx.group.generation_id == 2


def test_a_session_that_ends_during_the_rebalance_completes_it() -> None:
    ctx = Context()
    leader = ctx.join(**PATIENT)
    ctx.join(session_ms=300)
    ctx.advance(2 * INITIAL_DELAY_MS)
    rejoined = ctx.join(leader.member_id, metadata=b"new", **PATIENT)
    ctx.advance(299)
    assert rejoined.parked
    ctx.advance(1)
    assert rejoined.generation == 2


def test_the_session_of_one_who_waits_does_not_end() -> None:
    """The member has nothing else to send; its session restarts with the response."""
    ctx, (leader, other) = patient_group(5000, 5000)
    waiting = ctx.join(other.member_id, metadata=b"new", session_ms=100, rebalance_ms=5000)
    ctx.advance(3000)
    assert waiting.parked
    ctx.join(leader.member_id, **PATIENT)
    assert waiting.generation == 2
    ctx.advance(99)
    assert other.member_id in ctx.members
    ctx.advance(1)
    assert other.member_id not in ctx.members


# --- new members ----------------------------------------------------------------------------------


def test_a_new_member_waits_five_minutes_and_no_longer() -> None:
    """KAFKA-7610: its client may be dead, which looks like a client that waits."""
    ctx, (leader,) = patient_group(900_000)
    newcomer = ctx.join(session_ms=600_000)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 50_000 - 1):
        ctx.advance(50_000)
        ctx.heartbeat(leader)
    ctx.advance(49_999)
    assert newcomer.parked
    ctx.advance(1)
    assert newcomer.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert newcomer.body.member_id == ""
    assert ctx.members == [leader.member_id]
    assert ctx.events[-1].reason == "its first join was not answered in time"


def test_a_new_member_s_own_session_does_not_count_while_it_waits() -> None:
    ctx, (leader,) = patient_group(20_000)
    newcomer = ctx.join(session_ms=100)
    ctx.advance(10_000)
    assert newcomer.parked
    assert ctx.join(leader.member_id, **PATIENT).generation == 2
    assert newcomer.generation == 2


def test_a_known_member_waits_as_long_as_the_rebalance() -> None:
    ctx, (first, second) = patient_group(900_000, 900_000)
    waiting = ctx.join(second.member_id, metadata=b"new", **PATIENT, rebalance_ms=900_000)
    for _ in range(10):
        ctx.advance(50_000)
        ctx.heartbeat(first)
    assert waiting.parked


# --- the leader -----------------------------------------------------------------------------------


def leaders_elected(ctx: Context) -> list[tuple[str | None, int | None]]:
    return [(e.member_id, e.generation) for e in ctx.events if e.event == "leader_elected"]


def test_a_leader_that_was_dropped_is_succeeded() -> None:
    ctx, (leader, second, third) = patient_group(500, 500, 500)
    calls = [ctx.join(m.member_id, metadata=b"new", **PATIENT) for m in (third, second)]
    ctx.advance(REBALANCE_MS)
    # The member with the oldest join, in whatever order they rejoined.
    assert {call.body.leader for call in calls} == {second.member_id}
    assert len(calls[1].body.members) == 2
    assert leaders_elected(ctx) == [(leader.member_id, 1), (second.member_id, 2)]


def test_a_leader_that_left_is_succeeded() -> None:
    ctx, (leader, second) = patient_group(500, 500)
    ctx.leave(leader)
    rejoined = ctx.join(second.member_id, **PATIENT)
    assert rejoined.body.leader == second.member_id
    assert leaders_elected(ctx)[-1] == (second.member_id, 2)


def test_a_leader_that_stays_is_not_announced_again() -> None:
    ctx, (leader,) = patient_group(500)
    newcomer = ctx.join(**PATIENT)
    ctx.join(leader.member_id, **PATIENT)
    assert newcomer.body.leader == leader.member_id
    assert leaders_elected(ctx) == [(leader.member_id, 1)]


def test_the_first_member_after_the_group_was_empty_is_announced() -> None:
    ctx, (leader,) = patient_group(500)
    ctx.leave(leader)
    newcomer = ctx.join()
    ctx.advance(INITIAL_DELAY_MS)
    assert leaders_elected(ctx)[-1] == (newcomer.member_id, 3)


def test_a_loaded_leader_is_not_announced_again() -> None:
    before, (leader,) = patient_group(500)
    ctx = Context()
    ctx.load(before.log)
    rejoined = ctx.join(leader.member_id)
    assert rejoined.body.leader == leader.member_id
    assert leaders_elected(ctx) == []


def test_a_static_leader_that_did_not_rejoin_stays_and_leads_no_more() -> None:
    ctx = Context()
    leader, follower = ctx.static_pair(**PATIENT)
    rejoined = ctx.join(follower.member_id, "follower", metadata=b"new", **PATIENT, **STATIC)
    ctx.advance(REBALANCE_MS)
    assert rejoined.generation == 2
    assert rejoined.body.leader == follower.member_id
    assert {m.group_instance_id for m in rejoined.body.members} == {"leader", "follower"}
    assert leaders_elected(ctx)[-1] == (follower.member_id, 2)
    # It is still a member: when it rejoins, it gets the present generation.
    late = ctx.join(leader.member_id, "leader", **PATIENT, **STATIC)
    assert (late.code, late.generation) == (ErrorCode.NONE, 2)
    assert late.body.leader == follower.member_id


# --- static members that do not come back ---------------------------------------------------------


def test_a_static_member_is_kept_till_its_session_ends() -> None:
    ctx = Context()
    leader, follower = ctx.static_pair(session_ms=1000, rebalance_ms=2000)
    ctx.heartbeat(leader)
    rejoined = ctx.join(leader.member_id, "leader", **PATIENT, **STATIC)
    ctx.advance(998)
    assert rejoined.parked
    assert follower.member_id in ctx.members
    ctx.advance(1)
    assert rejoined.generation == 2
    assert ctx.members == [leader.member_id]
    [expired] = [e for e in ctx.events if e.event == "member_expired"]
    assert expired.reason == "session of 1000 ms expired without a heartbeat"


def test_a_group_whose_static_members_all_stay_away_waits_for_their_sessions() -> None:
    """A new member began the rebalance and left; no member is there to begin a generation."""
    ctx = Context()
    ctx.static_pair(session_ms=1200, rebalance_ms=500)
    newcomer = ctx.two_step_join(protocols=SUPERSET, **PATIENT)
    ctx.leave(newcomer)
    started = ctx.now
    for timeouts in (1, 2):
        ctx.advance(started + timeouts * 500 - ctx.now)
        assert ctx.state is GroupState.PREPARING_REBALANCE
        assert ctx.group.generation_id == 1
        assert ctx.group.delayed_join.deadline == ctx.now + 500
    ctx.advance(200)
    assert ctx.state is GroupState.EMPTY
    assert ctx.group.generation_id == 2
    assert ctx.members == []


def test_one_static_member_that_comes_back_while_the_others_stay_away() -> None:
    ctx = Context()
    _, follower = ctx.static_pair(**PATIENT)
    ctx.leave(ctx.two_step_join(protocols=SUPERSET, **PATIENT))
    ctx.advance(REBALANCE_MS + 100)
    rejoined = ctx.join(follower.member_id, "follower", **PATIENT, **STATIC)
    assert rejoined.parked
    ctx.advance(REBALANCE_MS - 100)
    assert rejoined.generation == 2
    assert len(rejoined.body.members) == 2


@pytest.mark.parametrize("rebalance_ms", [0, -1])
def test_a_rebalance_timeout_of_nothing_does_not_stop_the_clock(rebalance_ms: int) -> None:
    """A timer that is set again for the same time would be due forever."""
    ctx = Context()
    ctx.static_pair(**PATIENT, rebalance_ms=REBALANCE_MS)
    for member in ctx.group.members.values():
        member.rebalance_timeout_ms = rebalance_ms
    ctx.leave(ctx.two_step_join(protocols=SUPERSET, **PATIENT))
    ctx.now = ctx.group.delayed_join.deadline
    assert len(list(islice(ctx.coordinator.fire_due(ctx.begin_decision()), 2))) == 1
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert ctx.deadline > ctx.now


# --- generations ----------------------------------------------------------------------------------


def test_a_generation_ends_when_the_last_member_leaves() -> None:
    """The empty generation has a number too, and is stored; the next one continues from it."""
    ctx, (member,) = patient_group(500)
    ctx.leave(member)
    assert ctx.state is GroupState.EMPTY
    assert ctx.group.generation_id == 2
    stored = ctx.log[-1].group_metadata
    assert (stored.generation, stored.members) == (2, ())
    assert (stored.protocol_type, stored.protocol, stored.leader) == ("consumer", None, None)
    assert ctx.log[-1].reason.startswith(f"group emptied: member {member.member_id}")
    newcomer = ctx.join()
    ctx.advance(INITIAL_DELAY_MS)
    assert newcomer.generation == 3


def test_an_empty_generation_that_cannot_be_stored_begins_nevertheless() -> None:
    """At worst the stored one is loaded, and its members time out."""
    ctx, (member,) = patient_group(500)
    logged = len(ctx.log)
    ctx.log_refuses = True
    assert ctx.leave(member).member_codes == [ErrorCode.NONE]
    assert ctx.state is GroupState.EMPTY
    assert (ctx.group.generation_id, len(ctx.log)) == (2, logged)


def test_the_members_vote_for_the_protocol() -> None:
    ctx = Context()
    joins = [
        ctx.join(protocols=protocols)
        for protocols in (["range", "sticky"], ["sticky", "range"], ["sticky", "range", "mine"])
    ]
    ctx.advance(10 * INITIAL_DELAY_MS)
    assert {join.body.protocol_name for join in joins} == {"sticky"}


def test_the_leader_reads_each_member_s_bytes_for_the_chosen_protocol() -> None:
    ctx = Context()
    leader = ctx.join(protocols=["range"], metadata=b"chosen")
    ctx.join(protocols=["sticky", "range"], metadata=b"also chosen")
    ctx.advance(2 * INITIAL_DELAY_MS)
    assert leader.body.protocol_name == "range"
    assert [m.metadata for m in leader.body.members] == [b"chosen", b"also chosen"]


# --- requests that wait ---------------------------------------------------------------------------


@pytest.mark.parametrize("instance_id", [None, "instance"])
def test_a_join_that_is_repeated_answers_the_one_before(instance_id: str | None) -> None:
    """Kafka never answers it; here each request is answered."""
    ctx, (leader,) = patient_group(500)
    newcomer = ctx.join(instance_id=instance_id, version=TWO_STEP)
    if instance_id is None:
        newcomer = ctx.join(newcomer.member_id, version=TWO_STEP)
    known = ctx.members[-1]
    again = ctx.join(known, instance_id, version=TWO_STEP)
    assert newcomer.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert newcomer.body.member_id == known
    assert newcomer.generation == -1
    assert again.parked
    ctx.join(leader.member_id)
    assert (again.code, again.generation) == (ErrorCode.NONE, 2)


def test_a_repeated_join_may_offer_other_protocols() -> None:
    """The last join counts."""
    ctx, (leader,) = patient_group(500)
    first = ctx.join(leader.member_id, protocols=["range"])
    assert first.generation == 2
    newcomer = ctx.two_step_join(protocols=["range"])
    again = ctx.join(newcomer.member_id, protocols=["range"], metadata=b"second thoughts")
    leading = ctx.join(leader.member_id)
    assert [m.metadata for m in leading.body.members] == [b"", b"second thoughts"]
    assert again.generation == 3


def test_a_newcomer_sends_those_who_wait_for_an_assignment_back() -> None:
    ctx = Context()
    leader, follower = ctx.join(**PATIENT), ctx.join(**PATIENT)
    ctx.advance(2 * INITIAL_DELAY_MS)
    waiting = ctx.sync(follower)
    assert waiting.parked
    newcomer = ctx.join()
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.assignment == b""
    assert waiting.body.protocol_type is None and waiting.body.protocol_name is None
    assert newcomer.parked
    assert ctx.sync(leader).code == ErrorCode.REBALANCE_IN_PROGRESS


def test_those_sent_back_hold_no_assignment_any_more() -> None:
    """They got a new generation, and so have released the old assignment."""
    ctx = Context()
    leader, follower = ctx.stable_pair()
    ctx.join(leader.member_id)
    ctx.join(follower.member_id)
    assert [m.assignment for m in ctx.describe().body.members] == [b"leader", b"follower"]
    ctx.join()
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert {m.assignment for m in ctx.describe().body.members} == {b""}


def test_the_session_of_one_sent_back_starts_again() -> None:
    """It may have expired while the member waited for its assignment."""
    ctx = Context()
    ctx.join(**PATIENT, rebalance_ms=5000)
    follower = ctx.join(session_ms=300, rebalance_ms=5000)
    ctx.advance(2 * INITIAL_DELAY_MS)
    ctx.sync(follower)
    ctx.advance(1000)
    ctx.join(**PATIENT)
    ctx.advance(299)
    assert follower.member_id in ctx.members
    ctx.advance(1)
    assert follower.member_id not in ctx.members


def test_a_rebalance_forgets_who_owes_a_sync() -> None:
    ctx = Context()
    leader = ctx.join(**PATIENT)
    ctx.advance(INITIAL_DELAY_MS)
    assert ctx.group.pending_syncs == [leader.member_id]
    ctx.join(**PATIENT)
    assert ctx.group.pending_syncs == []
    assert ctx.group.sync_deadline is None


# --- the audit log --------------------------------------------------------------------------------


def test_a_first_rebalance_as_the_audit_log_tells_it() -> None:
    ctx = Context()
    member = ctx.join(reason="I am new", client_id="till", client_host="/10.0.0.7")
    ctx.advance(INITIAL_DELAY_MS)
    ctx.sync(member)
    assert ctx.event_names() == [
        "member_joined",
        "transition",
        "transition",
        "leader_elected",
        "transition",
    ]
    joined, preparing, completing, elected, stable = ctx.events
    assert joined.member_id == member.member_id
    assert (joined.client_id, joined.client_host) == ("till", "/10.0.0.7")
    assert joined.reason == "client reason: I am new"
    assert joined.request_id == preparing.request_id == member.request.request_id
    assert preparing.reason == (
        f"Adding new member {member.member_id} with group instance id None; client reason: I am new"
    )
    assert (completing.generation, completing.at) == (1, INITIAL_DELAY_MS)
    # A timer caused that, not a request.
    assert completing.request_id is None
    assert elected.member_id == member.member_id
    assert stable.reason == "leader synced"
    assert transitions(ctx) == [
        ("Empty", "PreparingRebalance"),
        ("PreparingRebalance", "CompletingRebalance"),
        ("CompletingRebalance", "Stable"),
    ]


def test_the_reason_of_a_newcomer() -> None:
    ctx, _ = patient_group(500)
    ctx.join(instance_id="till-7")
    assert last_reason(ctx) == (
        f"Adding new member {ctx.members[-1]} with group instance id till-7; "
        "client reason: not provided"
    )


def test_the_reason_of_a_leader_that_joins_again() -> None:
    ctx, (leader, _) = patient_group(500, 500)
    ctx.join(leader.member_id, reason="partitions were added")
    assert last_reason(ctx) == (
        f"Leader {leader.member_id} re-joining group during Stable; "
        "client reason: partitions were added"
    )


def test_the_reason_of_a_member_that_changed() -> None:
    ctx, (_, follower) = patient_group(500, 500)
    ctx.join(follower.member_id, metadata=b"more topics")
    assert last_reason(ctx) == (
        f"Updating metadata for member {follower.member_id} during Stable; "
        "client reason: not provided"
    )


def test_the_reason_of_a_session_that_ended() -> None:
    ctx = Context()
    ctx.stable_pair()
    ctx.advance(10_000)
    assert "heartbeat expiration" in next(e.reason for e in ctx.events if e.from_state == "Stable")
    assert "expired without a heartbeat" in last_reason(ctx)
    assert transitions(ctx)[-2:] == [
        ("Stable", "PreparingRebalance"),
        ("PreparingRebalance", "Empty"),
    ]


def test_a_member_that_never_syncs_is_told_of() -> None:
    """KAFKA-12890."""
    ctx = Context()
    leader = ctx.join(**PATIENT)
    ctx.advance(INITIAL_DELAY_MS + REBALANCE_MS)
    [expired] = [e for e in ctx.events if e.event == "member_expired"]
    assert expired.member_id == leader.member_id
    assert expired.reason == "did not sync within the rebalance timeout"
    assert ctx.state is GroupState.EMPTY


def test_a_running_rebalance_is_not_begun_again() -> None:
    ctx, _ = patient_group(500, 500)
    ctx.join()
    ctx.join()
    assert transitions(ctx).count(("Stable", "PreparingRebalance")) == 1


def test_an_emptied_group_says_who_was_last() -> None:
    ctx, (member,) = patient_group(500)
    ctx.leave(member)
    assert last_reason(ctx) == (
        f"group emptied: member {member.member_id}: client reason: not provided"
    )
    assert transitions(ctx)[-1] == ("PreparingRebalance", "Empty")
