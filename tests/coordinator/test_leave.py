"""LeaveGroup: one member or several leave, or an administrator removes them."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import LeavingMember
from tests.context import GROUP_ID, INITIAL_DELAY_MS, TWO_STEP, Call, Context

LONG_MS = 10_000


def pending_setup(ctx: Context) -> tuple[Call, Call, Call]:
    """Return a member with only an id, and the two joins of a rebalance that wait for it."""
    first, second = ctx.stable_pair()
    waiting = ctx.join(first.member_id)
    pending = ctx.join(version=TWO_STEP, session_ms=100)
    also_waiting = ctx.join(second.member_id)
    assert ctx.state is GroupState.PREPARING_REBALANCE
    return pending, waiting, also_waiting


# --- the answer -----------------------------------------------------------------------------------


def test_l02_there_is_no_such_group() -> None:
    leave = Context().leave("member")
    assert leave.code == ErrorCode.NONE
    assert leave.member_codes == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_l03_an_unknown_member() -> None:
    ctx = Context()
    ctx.stable_group()
    leave = ctx.leave("stranger")
    assert leave.code == ErrorCode.NONE
    assert leave.member_codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert ctx.state is GroupState.STABLE


def test_l04_a_member_leaves() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    leave = ctx.leave(leader)
    assert leave.code == ErrorCode.NONE
    assert leave.member_codes == [ErrorCode.NONE]
    assert [m.member_id for m in leave.body.members] == [leader.member_id]


@pytest.mark.parametrize("members", [["one"], ["one", "two"]], ids=["l05", "l06"])
def test_l05_l06_a_dead_group_is_to_be_looked_for_elsewhere(members: list[str]) -> None:
    ctx = Context()
    ctx.group = ClassicGroup(GROUP_ID, state=GroupState.DEAD)
    leave = ctx.leave(*members)
    assert leave.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert leave.body.members == ()


def test_l07_a_member_that_was_only_given_its_id_leaves_and_the_rebalance_goes_on() -> None:
    ctx = Context()
    pending, *waiting = pending_setup(ctx)
    leave = ctx.leave(pending)
    assert leave.member_codes == [ErrorCode.NONE]
    assert ctx.state is GroupState.COMPLETING_REBALANCE
    assert [join.generation for join in waiting] == [2, 2]
    assert ctx.group is not None
    assert (len(ctx.members), ctx.group.pending_joins) == (2, {})


def test_l09_a_static_member_under_a_wrong_member_id_is_fenced() -> None:
    ctx = Context()
    ctx.static_pair()
    leave = ctx.leave(LeavingMember("wrong", "leader"))
    assert leave.code == ErrorCode.NONE
    assert leave.member_codes == [ErrorCode.FENCED_INSTANCE_ID]
    assert len(ctx.members) == 2


def test_l10_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    ctx = Context()
    _, follower = ctx.static_pair()
    leave = ctx.leave(LeavingMember("", "leader"))
    assert leave.code == ErrorCode.NONE
    assert leave.member_codes == [ErrorCode.NONE]
    (told,) = leave.body.members
    assert (told.member_id, told.group_instance_id) == ("", "leader")
    assert ctx.members == [follower.member_id]


@pytest.mark.parametrize("instance_id", [None, "unknown"])
def test_nobody_is_removed_without_an_id_that_is_known(instance_id: str | None) -> None:
    ctx = Context()
    ctx.static_pair()
    leave = ctx.leave(LeavingMember("", instance_id))
    assert leave.member_codes == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_l11_both_static_members_leave_in_one_request() -> None:
    ctx = Context()
    leader, follower = ctx.static_pair()
    leave = ctx.leave(
        LeavingMember(leader.member_id, "leader"), LeavingMember(follower.member_id, "follower")
    )
    assert leave.code == ErrorCode.NONE
    assert leave.member_codes == [ErrorCode.NONE, ErrorCode.NONE]
    assert ctx.state is GroupState.EMPTY


def test_l12_a_batch_sent_to_the_wrong_coordinator() -> None:
    ctx = Context()
    ctx.static_pair()
    ctx.ownership = ErrorCode.NOT_COORDINATOR
    leave = ctx.leave(LeavingMember("", "leader"), LeavingMember("", "follower"))
    assert leave.code == ErrorCode.NOT_COORDINATOR
    assert len(ctx.members) == 2


def test_l13_a_batch_for_a_group_that_is_not_there() -> None:
    leave = Context().leave(LeavingMember("", "leader"), LeavingMember("", "follower"))
    assert leave.code == ErrorCode.NONE
    assert leave.member_codes == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_each_member_of_a_batch_has_its_own_code() -> None:
    ctx = Context()
    leader, follower = ctx.static_pair()
    leave = ctx.leave(
        LeavingMember("stranger"),
        LeavingMember("wrong", "leader"),
        LeavingMember(follower.member_id, "follower"),
        LeavingMember(follower.member_id, "follower"),
    )
    assert leave.member_codes == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert ctx.members == [leader.member_id]


def test_nobody_named_nobody_gone() -> None:
    ctx = Context()
    ctx.stable_group()
    leave = ctx.leave()
    assert (leave.code, leave.body.members) == (ErrorCode.NONE, ())
    assert ctx.state is GroupState.STABLE


@pytest.mark.parametrize("version", [0, 1, 2])
def test_below_version_3_there_is_one_code_and_no_list(version: int) -> None:
    ctx = Context()
    leader = ctx.stable_group()
    refused = ctx.leave("stranger", version=version)
    assert (refused.code, refused.body.members) == (ErrorCode.UNKNOWN_MEMBER_ID, None)
    left = ctx.leave(leader, version=version)
    assert (left.code, left.body.members) == (ErrorCode.NONE, None)
    unknown = Context().leave("member", version=version)
    assert (unknown.code, unknown.body.members) == (ErrorCode.UNKNOWN_MEMBER_ID, None)


def test_from_version_3_on_there_is_a_list() -> None:
    ctx = Context()
    leave = ctx.leave(ctx.stable_group(), version=3)
    assert leave.code == ErrorCode.NONE
    assert leave.member_codes == [ErrorCode.NONE]


def test_who_names_nobody_does_not_remove_the_static_member_whose_instance_id_is_empty() -> None:
    ctx = Context()
    ctx.join(instance_id="")
    ctx.advance(INITIAL_DELAY_MS)
    assert ctx.leave(LeavingMember()).member_codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert ctx.leave(LeavingMember("", "")).member_codes == [ErrorCode.NONE]


# --- what becomes of the group --------------------------------------------------------------------


def test_the_last_member_leaves_and_the_group_is_empty_at_once() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    leave = ctx.leave(LeavingMember(leader.member_id, None, "the consumer is being closed"))
    assert ctx.state is GroupState.EMPTY
    record = ctx.log[-1]
    assert record.request_id == leave.request.request_id
    assert "the consumer is being closed" in (record.reason or "")
    stored = record.group_metadata
    assert stored is not None
    assert (stored.generation, stored.members, stored.protocol, stored.leader) == (
        2,
        (),
        None,
        None,
    )
    assert stored.protocol_type == "consumer"


def test_a_member_leaves_and_the_others_are_told_to_rejoin() -> None:
    ctx = Context()
    leader, follower = ctx.stable_pair()
    ctx.leave(follower)
    assert ctx.heartbeat(leader).code == ErrorCode.REBALANCE_IN_PROGRESS
    assert ctx.heartbeat(follower).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ctx.join(leader.member_id).generation == 2


def test_the_leader_leaves_and_another_leads() -> None:
    ctx = Context()
    leader, follower = ctx.stable_pair()
    ctx.leave(leader)
    join = ctx.join(follower.member_id)
    assert join.body.leader == follower.member_id
    assert [member.member_id for member in join.body.members] == [follower.member_id]


def test_a_member_leaves_while_syncs_wait() -> None:
    ctx = Context()
    leader, follower, third = ctx.join(), ctx.join(), ctx.join()
    ctx.advance(3 * INITIAL_DELAY_MS)
    syncs = [ctx.sync(follower), ctx.sync(third)]
    ctx.leave(follower)
    # Kafka never answers the sync of the member that left; here each request is answered.
    assert syncs[0].code == ErrorCode.UNKNOWN_MEMBER_ID
    assert syncs[1].code == ErrorCode.REBALANCE_IN_PROGRESS
    assert ctx.state is GroupState.PREPARING_REBALANCE
    assert ctx.members == [leader.member_id, third.member_id]


def test_a_member_leaves_while_its_own_join_waits() -> None:
    ctx = Context()
    leader, follower = ctx.stable_pair()
    newcomer = ctx.join()
    waiting = ctx.join(follower.member_id)
    ctx.leave(follower)
    assert waiting.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert newcomer.parked
    assert ctx.join(leader.member_id).generation == newcomer.generation == 2


def test_the_one_that_was_waited_for_leaves_and_the_rebalance_goes_on() -> None:
    ctx = Context()
    leader, follower = ctx.stable_pair()
    waiting = ctx.join(leader.member_id)
    assert waiting.parked
    ctx.leave(follower)
    assert waiting.generation == 2
    assert [member.member_id for member in waiting.body.members] == [leader.member_id]


def test_everybody_leaves_in_the_first_rebalance_which_ends_only_with_its_delay() -> None:
    ctx = Context()
    join = ctx.two_step_join()
    assert ctx.leave(join).member_codes == [ErrorCode.NONE]
    assert join.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ctx.state is GroupState.PREPARING_REBALANCE
    ctx.advance(INITIAL_DELAY_MS)
    assert ctx.state is GroupState.EMPTY
    assert ctx.group is not None
    assert ctx.group.generation_id == 1


def test_a_pending_member_that_leaves_a_stable_group_makes_it_rebalance() -> None:
    ctx = Context()
    leader = ctx.stable_group()
    pending = ctx.join(version=TWO_STEP)
    ctx.leave(pending)
    assert ctx.heartbeat(leader).code == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_audit_log_says_who_left_and_why() -> None:
    ctx = Context()
    leader, follower = ctx.stable_pair()
    ctx.leave(LeavingMember(follower.member_id, None, "redeployed"))
    (left,) = [event for event in ctx.events if event.event == "member_left"]
    assert left.member_id == follower.member_id
    assert left.reason == "client reason: redeployed"
    ctx.leave(leader)
    assert [e.reason for e in ctx.events if e.event == "member_left"][1] == (
        "client reason: not provided"
    )
