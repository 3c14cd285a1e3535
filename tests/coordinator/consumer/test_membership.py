"""Join, sync, heartbeat and leave: what the consumer makes of every answer."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.consumer.consumer_errors import (
    ConsumerError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    UnsupportedVersionError,
)
from group_coordinator.coordinator.consumer.events import (
    AssignPartitions,
    LosePartitions,
    RevokePartitions,
)
from group_coordinator.coordinator.consumer.member_state import Generation, MemberState
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode
from tests.coordinator.consumer.lone import (
    BACKOFF_MS,
    COOPERATIVE,
    HEARTBEAT_MS,
    MAX_POLL_MS,
    REQUEST_MS,
    SESSION_MS,
    T0,
    T1,
    Lone,
)

FIRST = Generation(1, "member", "range")


# --- find coordinator -----------------------------------------------------------------------------


def test_the_coordinator_is_looked_for_with_growing_pauses() -> None:
    one = Lone(retry_backoff_max_ms=300)
    one.poll()
    for pause in (100, 200, 300, 300):
        one.answer(one.sent("find_coordinator"), ErrorCode.COORDINATOR_NOT_AVAILABLE)
        one.advance(pause - 1)
        assert not one.requests("find_coordinator")
        one.advance(1)
    one.answer(one.sent("find_coordinator"), body=m.FindCoordinatorResponse(0, 1, "host", 9))
    one.poll()
    assert one.sent("join_group")


def test_a_lookup_that_is_not_answered_is_repeated() -> None:
    one = Lone()
    one.poll()
    first = one.sent("find_coordinator")
    one.advance(REQUEST_MS + BACKOFF_MS)
    assert len(one.requests("find_coordinator")) == 2
    assert not one.answer(first, body=m.FindCoordinatorResponse(0, 1, "host", 9))


def test_a_group_that_may_not_be_used_is_an_error_each_time() -> None:
    one = Lone()
    for _ in range(2):
        one.poll()
        one.answer(one.sent("find_coordinator"), ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(
            GroupAuthorizationError, match="the principal is not authorized to use group 'groupId'"
        ):
            one.poll()
        one.advance(1_000)


# --- join -----------------------------------------------------------------------------------------


def test_a_new_member_joins_in_two_steps() -> None:
    one = Lone(client_id="client", client_rack="rack")
    one.find()
    one.poll()
    first = one.sent("join_group")
    assert first.client_id == "client" and first.join_group is not None
    assert first.join_group.member_id == ""
    assert first.join_group.rebalance_timeout_ms == MAX_POLL_MS
    assert [p.name for p in first.join_group.protocols] == ["range", "cooperative-sticky"]
    one.answer(first, ErrorCode.MEMBER_ID_REQUIRED, m.JoinGroupResponse(member_id="given"))
    one.poll()
    second = one.sent("join_group").join_group
    assert second is not None and second.member_id == "given"
    assert second.reason == "need to re-join with the given member-id"


def test_a_follower_syncs_with_nothing_and_takes_what_it_is_given() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer_join(generation=7)
    assert one.consumer.state is MemberState.COMPLETING_REBALANCE
    assert one.sent("sync_group").sync_group == m.SyncGroupRequest(
        7, "member", None, "consumer", "range", ()
    )
    one.answer_sync([T1])
    assert one.poll() == [AssignPartitions((T1,), 7)]
    assert one.consumer.assignment == (T1,)
    assert one.consumer.state is MemberState.STABLE


def test_the_leader_assigns_for_all() -> None:
    one = Lone()
    one.find()
    one.poll()
    members = [
        m.JoinGroupResponseMember(name, None, encode_subscription(Subscription(("t",))))
        for name in ("member", "other")
    ]
    one.answer_join(leads=members)
    one.poll()
    sync = one.sent("sync_group").sync_group
    assert sync is not None and sync.assignments is not None
    given = {a.member_id: decode_assignment(a.assignment).partitions for a in sync.assignments}
    assert given == {"member": (T0,), "other": (T1,)}
    assert one.consumer.is_leader


def test_a_static_leader_that_returns_is_told_not_to_assign() -> None:
    one = Lone(group_instance_id="one")
    one.find()
    one.poll()
    blob = encode_subscription(Subscription(("t", "u")))
    one.answer_join(leads=[m.JoinGroupResponseMember("member", "one", blob)], skip_assignment=True)
    one.poll()
    sync = one.sent("sync_group").sync_group
    assert sync is not None and sync.assignments == ()
    one.answer_sync([T0])
    one.poll()
    # It leads all the same: a topic that only another member has leads to a rebalance.
    one.consumer.update_topics({"t": 2, "u": 1})
    assert isinstance(one.poll()[0], RevokePartitions)


def returned_leader() -> tuple[Lone, m.RequestEvent]:
    """A static leader that came back, and its question what the members hold."""
    one = Lone(group_instance_id="one")
    one.find()
    one.poll()
    blob = encode_subscription(Subscription(("t",)))
    one.answer_join(leads=[m.JoinGroupResponseMember("member", "one", blob)], skip_assignment=True)
    one.poll()
    one.answer_sync([T0, T1])
    one.poll()
    one.answer_fetch({T0: 0, T1: 0})
    return one, one.sent("describe_groups")


def described(*assignments: bytes) -> m.DescribeGroupsResponse:
    members = tuple(
        m.DescribedMember(str(number), None, "", "", b"", blob)
        for number, blob in enumerate(assignments)
    )
    return m.DescribeGroupsResponse("Stable", "consumer", "range", members)


def test_a_returned_leader_joins_again_for_a_partition_that_nobody_holds() -> None:
    one, asked = returned_leader()
    one.answer(asked, body=described(encode_assignment(Assignment((T0,))), b""))
    assert isinstance(one.poll()[0], RevokePartitions)


def test_a_returned_leader_stays_when_all_is_held() -> None:
    one, asked = returned_leader()
    held = [encode_assignment(Assignment((each,))) for each in (T1, T0)]
    one.answer(asked, body=described(*held))
    assert one.poll() == []
    assert not one.consumer.is_rejoining


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            m.DescribeGroupsResponse(),
            "the principal is not authorized to use group 'groupId'",
        ),
        (ErrorCode.NONE, described(b"\x00"), "too short"),
        (ErrorCode.NONE, None, "an error that the consumer does not expect"),
    ],
)
def test_a_leader_that_is_not_told_what_is_held_notes_it_and_stays(
    code: ErrorCode, body: m.DescribeGroupsResponse | None, words: str
) -> None:
    one, asked = returned_leader()
    one.consumer.take_log_lines()
    one.answer(asked, code, body)
    assert one.poll() == []
    assert not one.consumer.is_rejoining
    (note,) = one.consumer.take_log_lines()
    assert note.level == "warning" and words in note.text


def test_what_is_held_is_asked_of_the_coordinator_that_there_is_now() -> None:
    one, asked = returned_leader()
    one.answer(asked, ErrorCode.NOT_COORDINATOR)
    one.advance(BACKOFF_MS)
    assert one.requests("describe_groups") == []
    one.find()
    assert one.sent("describe_groups")


def test_what_was_held_in_an_earlier_generation_means_nothing() -> None:
    one, asked = returned_leader()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.REBALANCE_IN_PROGRESS)
    one.poll()
    one.answer_join(generation=2)
    one.answer_sync([T0])
    one.poll()
    one.answer(asked, body=described())
    assert one.poll() == []
    assert not one.consumer.is_rejoining


def test_a_subscription_that_cannot_be_read_ends_the_leaders_attempt() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer_join(leads=[m.JoinGroupResponseMember("member", None, b"\x00")])
    with pytest.raises(ConsumerError, match="too short"):
        one.poll()


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, InconsistentGroupProtocolError, "assignment.str"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, InvalidSessionTimeoutError, "session.timeout.ms 10000"),
        (ErrorCode.INVALID_GROUP_ID, InvalidGroupIdError, "group.id 'groupId'"),
        (
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            GroupAuthorizationError,
            "the principal is not authorized to use group 'groupId'",
        ),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupMaxSizeReachedError, "group.max.size"),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError, "group.instance.id"),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedVersionError, "upgrade the coordinator"),
        (
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ConsumerError,
            "an error that the consumer does not expect",
        ),
    ],
)
def test_joins_that_a_person_must_see_to(
    code: ErrorCode, error: type[ConsumerError], words: str
) -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer(one.sent("join_group"), code)
    with pytest.raises(error) as raised:
        one.poll()
    assert type(raised.value) is error
    assert words in str(raised.value) and code.name in str(raised.value)
    assert raised.value.code == code


def test_an_error_that_is_not_for_good_may_be_polled_away() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer(one.sent("join_group"), ErrorCode.GROUP_MAX_SIZE_REACHED)
    with pytest.raises(GroupMaxSizeReachedError):
        one.poll()
    assert one.join() == [AssignPartitions((T0, T1), 1)]


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS], ids=lambda c: c.name
)
def test_a_join_that_is_repeated_at_once(code: ErrorCode) -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer(one.sent("join_group"), code)
    one.poll()
    assert one.sent("join_group")


def test_while_the_coordinator_loads_the_join_waits_for_the_backoff() -> None:
    one = Lone()
    one.find()
    one.poll()
    for pause in (BACKOFF_MS, 2 * BACKOFF_MS):
        one.answer(one.sent("join_group"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        one.poll()
        assert one.consumer.poll_deadline == one.now + pause
        one.advance(pause)
        one.poll()
    assert one.sent("join_group")


@pytest.mark.parametrize("step", ["join_group", "sync_group"])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        # A signed request that was decided too late.
        ErrorCode.REQUEST_TIMED_OUT,
    ],
    ids=lambda c: c.name,
)
def test_a_coordinator_that_moved_is_found_again(step: str, code: ErrorCode) -> None:
    one = Lone()
    one.find()
    one.poll()
    if step == "sync_group":
        one.answer_join()
    one.answer(one.sent(step), code)
    one.find()
    one.advance(BACKOFF_MS)
    one.poll()
    join = one.sent("join_group").join_group
    assert join is not None and join.member_id == ("member" if step == "sync_group" else "")


def test_a_join_is_waited_for_as_long_as_a_rebalance_may_take() -> None:
    one = Lone()
    one.find()
    one.poll()
    join = one.sent("join_group")
    one.advance(MAX_POLL_MS + 4_999)
    one.poll()
    assert one.requests("join_group") == [join]
    one.advance(1)
    one.find()
    assert not one.answer(join, body=m.JoinGroupResponse(generation_id=1, member_id="member"))
    one.advance(BACKOFF_MS)
    one.poll()
    assert len(one.requests("join_group")) == 1


def test_a_short_rebalance_timeout_does_not_shorten_the_request_timeout() -> None:
    one = Lone(max_poll_interval_ms=1_000)
    one.find()
    one.poll()
    one.advance(REQUEST_MS - 1)
    assert not one.requests("find_coordinator")
    one.advance(1)
    assert one.consumer.poll(one.now) is None
    assert one.requests("find_coordinator")


# --- sync -----------------------------------------------------------------------------------------


def test_a_sync_in_a_group_that_rebalances_again_joins_again() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer_join()
    one.answer(one.sent("sync_group"), ErrorCode.REBALANCE_IN_PROGRESS)
    one.poll()
    join = one.sent("join_group").join_group
    assert join is not None and join.member_id == "member"


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "member")],
)
def test_a_sync_that_lost_its_generation_starts_afresh(code: ErrorCode, member_id: str) -> None:
    """The member id may still be good after ILLEGAL_GENERATION, and then saves a slow rebalance."""
    one = Lone()
    one.find()
    one.poll()
    one.answer_join()
    one.answer(one.sent("sync_group"), code)
    assert one.consumer.generation == Generation(member_id=member_id)
    one.poll()
    join = one.sent("join_group").join_group
    assert join is not None and join.member_id == member_id


def test_a_sync_of_another_protocol_is_refused() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer_join()
    one.answer(one.sent("sync_group"), body=m.SyncGroupResponse("consumer", "sticky", b""))
    with pytest.raises(InconsistentGroupProtocolError, match="sticky"):
        one.poll()


def test_a_group_of_another_kind_is_refused() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer(one.sent("join_group"), body=m.JoinGroupResponse(1, "connect", "range"))
    with pytest.raises(InconsistentGroupProtocolError, match="connect"):
        one.poll()


def test_a_member_that_the_leader_left_out_hears_of_it() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer_join()
    one.answer(one.sent("sync_group"))
    with pytest.raises(
        ConsumerError, match="the leader of group 'groupId' sent this member no valid assignment"
    ):
        one.poll()


def test_an_unexpected_answer_to_a_sync_is_raised() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer_join()
    one.answer(one.sent("sync_group"), ErrorCode.UNKNOWN_SERVER_ERROR)
    with pytest.raises(ConsumerError, match="UNKNOWN_SERVER_ERROR"):
        one.poll()


# --- heartbeat ------------------------------------------------------------------------------------


def test_heartbeats_are_sent_from_the_joins_answer_on() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.advance(HEARTBEAT_MS)
    assert not one.requests("heartbeat"), "the coordinator waits for it as it is"
    one.answer_join()
    one.advance(HEARTBEAT_MS)
    assert one.sent("heartbeat").heartbeat == m.HeartbeatRequest(1, "member", None)


def test_a_heartbeat_told_of_a_rebalance_counts_and_the_member_joins_again() -> None:
    one = Lone().member()
    for _ in range(SESSION_MS // HEARTBEAT_MS + 1):
        one.advance(HEARTBEAT_MS)
        one.answer(one.sent("heartbeat"), ErrorCode.REBALANCE_IN_PROGRESS)
    assert not one.requests("find_coordinator")
    assert one.consumer.is_rejoining
    assert [type(event) for event in one.poll()] == [RevokePartitions]
    join = one.sent("join_group").join_group
    assert join is not None
    assert (join.member_id, join.reason) == ("member", "group is already rebalancing")


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "member")],
)
def test_a_heartbeat_of_one_that_is_out_loses_the_partitions(
    code: ErrorCode, member_id: str
) -> None:
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), code)
    reason = f"encountered {code.name} from heartbeat response"
    assert one.poll() == [LosePartitions((T0, T1), reason)]
    join = one.sent("join_group").join_group
    assert join is not None and (join.member_id, join.reason) == (member_id, reason)


def test_a_fenced_member_stops_for_good() -> None:
    one = Lone(group_instance_id="one").member()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.FENCED_INSTANCE_ID)
    for _ in range(2):
        with pytest.raises(FencedInstanceIdError, match=r"group\.instance\.id 'one'"):
            one.poll()
    one.advance(SESSION_MS)
    assert not one.requests("heartbeat") and not one.requests("join_group")


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID],
    ids=lambda code: code.name,
)
def test_a_heartbeat_of_an_older_generation_is_of_no_account(code: ErrorCode) -> None:
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    stale = one.sent("heartbeat")
    one.consumer.subscribe(["t", "u"])
    one.join(generation=2)
    one.answer(stale, code)
    assert one.consumer.generation == Generation(2, "member", "range")
    assert one.poll() == []


def test_a_heartbeat_that_fails_is_repeated_after_the_backoff() -> None:
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    for pause in (BACKOFF_MS, 2 * BACKOFF_MS):
        one.answer(one.sent("heartbeat"), ErrorCode.UNKNOWN_SERVER_ERROR)
        one.advance(pause)
    one.answer(one.sent("heartbeat"))
    one.advance(HEARTBEAT_MS - 2 * BACKOFF_MS)
    assert one.consumer.generation == FIRST


def test_without_answers_for_a_session_the_coordinator_is_looked_for() -> None:
    one = Lone().member()
    one.advance(SESSION_MS - 1)
    assert not one.requests("find_coordinator")
    one.advance(1)
    late = one.requests("heartbeat")
    assert len(late) == 3
    one.answer(one.sent("find_coordinator"), body=m.FindCoordinatorResponse(0, 2, "other", 9))
    assert not one.answer(late[0], ErrorCode.UNKNOWN_MEMBER_ID), "it was given up"
    assert one.consumer.generation == FIRST
    one.advance(HEARTBEAT_MS)
    assert one.requests("heartbeat")


def test_an_answer_counts_once() -> None:
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    heartbeat = one.sent("heartbeat")
    assert one.answer(heartbeat)
    assert not one.answer(heartbeat, ErrorCode.UNKNOWN_MEMBER_ID)
    assert one.consumer.generation == FIRST


def test_the_group_may_no_longer_be_used() -> None:
    one = Lone().member()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(GroupAuthorizationError):
        one.poll()
    assert one.poll() == []


# --- the user's poll and leaving ------------------------------------------------------------------


def keep_alive(one: Lone, ms: int) -> None:
    """Answer heartbeats while the user does not poll."""
    for _ in range(ms // HEARTBEAT_MS):
        one.advance(HEARTBEAT_MS)
        for heartbeat in one.requests("heartbeat"):
            one.answer(heartbeat)


def test_a_user_that_polls_too_late_has_left() -> None:
    one = Lone().member()
    keep_alive(one, MAX_POLL_MS)
    leaving = m.LeavingMember("member", None, "consumer poll timeout has expired.")
    assert one.sent("leave_group").leave_group == m.LeaveGroupRequest((leaving,))
    assert one.consumer.generation == Generation()
    (lost,) = one.poll()
    assert isinstance(lost, LosePartitions) and lost.partitions == (T0, T1)
    assert one.sent("join_group")


def test_a_static_member_whose_user_polls_too_late_only_stops() -> None:
    one = Lone(group_instance_id="one").member()
    keep_alive(one, MAX_POLL_MS)
    assert not one.requests("leave_group")
    assert one.consumer.state is MemberState.UNJOINED
    assert isinstance(one.poll()[0], LosePartitions)


def test_polling_keeps_the_member_in() -> None:
    one = Lone().member()
    for _ in range(4):
        keep_alive(one, MAX_POLL_MS // 2)
        assert one.poll() == []
    assert one.consumer.generation == FIRST


def test_a_member_that_left_while_it_joined_passes_the_answer_over() -> None:
    one = Lone()
    one.find()
    one.poll()
    join = one.sent("join_group")
    one.consumer.unsubscribe(one.now)
    one.poll()
    one.answer(join, body=m.JoinGroupResponse(1, "consumer", "range", "x", False, "member"))
    one.poll()
    assert one.consumer.state is MemberState.UNJOINED
    assert not one.requests("sync_group")


def test_the_answer_to_an_earlier_join_is_not_taken_for_the_present_one_s() -> None:
    one = Lone()
    one.find()
    one.poll()
    earlier = one.sent("join_group")
    one.consumer.unsubscribe(one.now)
    one.poll()
    one.consumer.subscribe(["t"])
    one.poll()
    assert len(one.requests("join_group")) == 2
    one.answer(earlier, body=m.JoinGroupResponse(1, "consumer", "range", "x", False, "member"))
    assert one.consumer.state is MemberState.PREPARING_REBALANCE
    assert not one.requests("sync_group")


def test_cooperative_partitions_are_lost_when_the_join_finds_the_member_unknown() -> None:
    one = Lone(**COOPERATIVE).member()
    one.consumer.subscribe(["t", "u"])
    assert one.poll() == []
    one.answer(one.sent("join_group"), ErrorCode.UNKNOWN_MEMBER_ID)
    (lost,) = one.poll()
    assert isinstance(lost, LosePartitions) and lost.partitions == (T0, T1)
    join = one.sent("join_group").join_group
    assert join is not None and join.member_id == ""


def test_what_the_heartbeat_finds_while_the_listener_runs_makes_the_next_join_a_fresh_one() -> None:
    one = Lone(**COOPERATIVE).member()
    one.advance(HEARTBEAT_MS)
    heartbeat = one.sent("heartbeat")
    one.consumer.subscribe(["u"])
    event = one.consumer.poll(one.now)
    assert isinstance(event, RevokePartitions)
    one.answer(heartbeat, ErrorCode.UNKNOWN_MEMBER_ID)
    one.consumer.callback_done()
    one.poll()
    join = one.sent("join_group").join_group
    assert join is not None and join.member_id == ""


# --- answers that come when things have changed ---------------------------------------------------


def test_a_commit_that_finds_the_member_unknown_spoils_the_join_on_its_way() -> None:
    one = Lone().member()
    one.consumer.commit_async(one.now)
    one.consumer.subscribe(["t", "u"])
    one.poll()
    one.answer_commit(ErrorCode.UNKNOWN_MEMBER_ID)
    one.answer_join(generation=2)
    one.poll()
    assert not one.requests("sync_group")
    one.advance(BACKOFF_MS)
    one.poll()
    join = one.sent("join_group").join_group
    assert join is not None and join.member_id == ""


def test_a_heartbeat_that_finds_the_generation_lost_spoils_the_sync_on_its_way() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer_join()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.ILLEGAL_GENERATION)
    one.answer_sync([T0])
    assert one.poll() == []
    assert one.consumer.assignment == ()
    join = one.sent("join_group").join_group
    assert join is not None and join.member_id == "member"


def test_a_member_that_left_while_it_synced_passes_the_answer_over() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer_join()
    one.consumer.unsubscribe(one.now)
    one.poll()
    assert one.sent("leave_group")
    one.answer_sync([T0])
    assert one.poll() == []
    assert one.consumer.state is MemberState.UNJOINED and one.consumer.assignment == ()


def test_a_sync_with_a_group_of_another_kind_is_refused() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer_join()
    one.answer(one.sent("sync_group"), body=m.SyncGroupResponse("connect", "range"))
    with pytest.raises(InconsistentGroupProtocolError, match="connect"):
        one.poll()


def test_an_assignor_that_was_not_offered_is_refused() -> None:
    one = Lone()
    one.find()
    one.poll()
    one.answer_join(protocol="fair")
    one.answer_sync([T0])
    with pytest.raises(InconsistentGroupProtocolError, match=r"'fair'.*range"):
        one.poll()
