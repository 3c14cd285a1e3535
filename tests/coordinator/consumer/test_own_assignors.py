"""Assignors of a user's own: when they are called, and what their leader refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from group_coordinator.coordinator.config import ConfigError
from group_coordinator.coordinator.consumer.assignors import (
    ConsumerPartitionAssignor,
    RangeAssignor,
    RebalanceProtocol,
)
from group_coordinator.coordinator.consumer.consumer_errors import InvalidAssignmentError
from group_coordinator.coordinator.consumer.consumer_settings import parse_settings
from group_coordinator.coordinator.consumer.events import (
    AssignPartitions,
    CallAssignor,
    LosePartitions,
    RevokePartitions,
)
from group_coordinator.coordinator.consumer.member_state import ConsumerGroupMetadata, MemberState
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode
from tests.coordinator.consumer.lone import GROUP, HEARTBEAT_MS, MAX_POLL_MS, T0, T1, Lone
from tests.coordinator.consumer.world import World

Given = Mapping[str, Any]
A, B = Subscription(("t",), b"a's"), Subscription(("t", "u"))
U0 = TopicPartition("u", 0)


class Mine(ConsumerPartitionAssignor):
    """An assignor with the test's assignment, which records its calls."""

    name = "mine"

    def __init__(self, gives: Callable[[], Given] | None = None) -> None:
        self.gives = gives
        self.asked: list[Any] = []
        self.assigned: list[Any] = []

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return b"of " + ",".join(topics).encode()

    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        self.asked.append((dict(counts), dict(subscriptions)))
        if self.gives is not None:
            return dict(self.gives())
        everything = tuple(TopicPartition("t", n) for n in range(counts["t"]))
        first, *others = sorted(subscriptions)
        nothing = {member: Assignment((), b"spare") for member in others}
        return {first: Assignment(everything, b"works"), **nothing}

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self.assigned.append((assignment, metadata))


class Cooperative(Mine):
    protocols = (RebalanceProtocol.COOPERATIVE,)


def led(mine: Mine, members: Mapping[str, Subscription] | None = None) -> Lone:
    """A consumer that was elected leader, and has not polled since."""
    one = Lone(catalogue={"t": 2, "u": 1}, partition_assignment_strategy=[lambda: mine])
    one.find()
    one.poll()
    elect(one, members or {"member": A, "other": B})
    return one


def elect(one: Lone, members: Mapping[str, Subscription], generation: int = 1) -> None:
    blobs = [
        m.JoinGroupResponseMember(member, each.group_instance_id, encode_subscription(each))
        for member, each in members.items()
    ]
    one.answer_join(generation, leads=blobs)


def synced(one: Lone) -> dict[str, Assignment]:
    """What the leader's SyncGroup assigns."""
    request = one.sent("sync_group").sync_group
    assert request is not None
    return {each.member_id: decode_assignment(each.assignment) for each in request.assignments}


# --- when it is called ----------------------------------------------------------------------------


def test_it_assigns_within_poll_while_heartbeats_go_on() -> None:
    mine = Mine()
    one = led(mine)
    assert mine.asked == [], "the thread that brought the answer has not called it"
    event = one.consumer.poll(one.now)
    assert isinstance(event, CallAssignor) and mine.asked == []
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.REBALANCE_IN_PROGRESS)
    event.run()
    assert mine.asked == [({"t": 2, "u": 1}, {"member": A, "other": B})]
    assert one.requests("sync_group") == []
    one.consumer.callback_done()
    assert one.consumer.poll(one.now) is None
    assert synced(one) == {
        "member": Assignment((T0, T1), b"works"),
        "other": Assignment((), b"spare"),
    }


def test_its_user_data_go_with_the_subscription_and_come_with_the_assignment() -> None:
    mine = Mine()
    one = Lone(topics=["u", "t"], partition_assignment_strategy=[lambda: mine, "range"])
    one.find()
    one.poll()
    join = one.sent("join_group").join_group
    assert join is not None
    assert [each.name for each in join.protocols] == ["mine", "range"]
    said = [decode_subscription(each.metadata).user_data for each in join.protocols]
    assert said == [b"of t,u", None]
    one.answer_join(7, "me")
    blob = encode_assignment(Assignment((T1,), b"works"))
    one.answer(one.sent("sync_group"), body=m.SyncGroupResponse(assignment=blob))
    assert one.poll() == [AssignPartitions((T1,), 7)]
    metadata = ConsumerGroupMetadata(GROUP, 7, "me", None)
    assert mine.assigned == [(Assignment((T1,), b"works"), metadata)]


@pytest.mark.parametrize("kind", [Mine, Cooperative])
def test_it_hears_of_an_assignment_after_revoked_and_before_assigned(kind: type[Mine]) -> None:
    mine = kind()
    one = Lone(partition_assignment_strategy=[lambda: mine])
    one.find()
    one.join([T0, T1])
    mine.assigned.clear()
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.REBALANCE_IN_PROGRESS)
    order: list[Any] = []
    for answer in (lambda: one.answer_join(2), lambda: one.answer_sync([T0]), lambda: None):
        while (event := one.consumer.poll(one.now)) is not None:
            if isinstance(event, CallAssignor):
                event.run()
            order.append(len(mine.assigned) if isinstance(event, CallAssignor) else type(event))
            one.consumer.callback_done()
        if mine.assigned:
            break
        answer()
    # The call before the join asks for its user data.
    eager = [RevokePartitions, 0, 1, AssignPartitions]
    assert order == (eager if kind is Mine else [0, RevokePartitions, 1, AssignPartitions, 1])


def test_each_member_has_an_instance_of_its_own() -> None:
    made: list[Mine] = []

    def make() -> Mine:
        made.append(Mine())
        return made[-1]

    world = World(topics={"t": 2})
    strategy = [make, RangeAssignor]
    a = world.member("a", partition_assignment_strategy=strategy)
    b = world.member("b", partition_assignment_strategy=strategy)
    world.run(10_000)
    assert len(made) == 2 and a.is_settled and b.is_settled
    assert sorted(each.assigned[-1][0].user_data for each in made) == [b"spare", b"works"]
    assert sorted([a.owned, b.owned], key=len) == [set(), {T0, T1}]


# --- when it fails --------------------------------------------------------------------------------


def fail() -> Given:
    raise LookupError("mine")


def test_its_exception_is_polls_and_the_next_poll_joins_again() -> None:
    mine = Mine(fail)
    one = led(mine)
    with pytest.raises(LookupError, match="mine"):
        one.poll()
    assert one.requests("sync_group") == []
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"))
    assert one.poll() == []
    join = one.sent("join_group").join_group
    assert join is not None
    assert (join.member_id, join.reason) == ("member", "rebalance failed due to LookupError")
    mine.gives = None
    elect(one, {"member": A}, generation=2)
    assert one.poll() == []
    assert synced(one) == {"member": Assignment((T0, T1), b"works")}


@pytest.mark.parametrize("where", ["user_data", "on_assignment"])
def test_what_the_others_raise_is_polls_too_and_the_group_goes_on(where: str) -> None:
    class Failing(Mine):
        failed = False

    def failing(*_: Any) -> bytes:
        if not Failing.failed:
            Failing.failed = True
            raise LookupError(where)
        return b"said"

    setattr(Failing, where, failing)
    one = Lone(partition_assignment_strategy=[Failing])
    one.find()
    raised = []
    for _ in range(3):
        try:
            one.poll()
        except LookupError as error:
            raised.append(str(error))
        for request in one.requests("join_group"):
            assert request.join_group is not None
            (offered,) = request.join_group.protocols
            data = b"said" if where == "user_data" else b"of t"
            assert decode_subscription(offered.metadata).user_data == data
            one.answer_join()
            one.answer_sync([T0])
    assert raised == [where]
    assert (one.consumer.assignment, one.consumer.state) == ((T0,), MemberState.STABLE)


def test_a_generation_that_is_lost_meanwhile_is_not_synced() -> None:
    mine = Mine()
    one = led(mine)
    event = one.consumer.poll(one.now)
    assert isinstance(event, CallAssignor)
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.UNKNOWN_MEMBER_ID)
    event.run()
    one.consumer.callback_done()
    assert one.poll() == []
    assert one.requests("sync_group") == []
    join = one.sent("join_group").join_group
    assert join is not None and join.member_id == ""


def test_who_assigns_for_longer_than_max_poll_interval_ms_has_left() -> None:
    mine = Mine()
    one = led(mine)
    event = one.consumer.poll(one.now)
    assert isinstance(event, CallAssignor)
    while not one.requests("leave_group"):
        one.advance(HEARTBEAT_MS)
        for heartbeat in one.requests("heartbeat"):
            one.answer(heartbeat)
        assert one.now <= MAX_POLL_MS
    event.run()
    one.consumer.callback_done()
    assert one.poll() == []
    assert one.requests("sync_group") == []
    assert one.sent("join_group")


def test_partitions_that_were_lost_while_it_assigned_are_told_as_lost() -> None:
    mine = Cooperative()
    one = Lone(partition_assignment_strategy=[lambda: mine])
    one.find()
    one.join([T0])
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.REBALANCE_IN_PROGRESS)
    one.poll()
    elect(one, {"member": A}, generation=2)
    event = one.consumer.poll(one.now)
    assert isinstance(event, CallAssignor)
    one.advance(HEARTBEAT_MS)
    one.answer(one.sent("heartbeat"), ErrorCode.UNKNOWN_MEMBER_ID)
    event.run()
    one.consumer.callback_done()
    (lost,) = one.poll()
    assert isinstance(lost, LosePartitions) and lost.partitions == (T0,)


def test_a_driver_that_does_not_call_it_is_told_so() -> None:
    call = CallAssignor(dict)
    assert isinstance(call.error, RuntimeError) and "run()" in str(call.error)
    call.run()
    assert (call.result, call.error) == ({}, None)


# --- what the leader refuses ----------------------------------------------------------------------


def has(*partitions: TopicPartition) -> Assignment:
    return Assignment(partitions)


@pytest.mark.parametrize(
    ("gives", "words"),
    [
        ({"member": has(T0)}, "nothing, not even an empty Assignment, to 'other'"),
        (
            {"member": has(), "other": has(), "x": has()},
            "something to 'x', which is not a member of the group",
        ),
        ({"member": has(T0, T0), "other": has()}, "t-0 twice: to 'member' and to 'member'"),
        ({"member": has(T0), "other": has(T0)}, "t-0 twice: to 'member' and to 'other'"),
        ({"member": has(TopicPartition("t", 2)), "other": has()}, "t-2 does not exist"),
        ({"member": has(TopicPartition("t", -1)), "other": has()}, "t--1 does not exist"),
        ({"member": has(TopicPartition("x", 0)), "other": has()}, "x-0 does not exist"),
        ({"member": has(U0), "other": has()}, "u-0 to 'member', which does not subscribe to 'u'"),
        ({"member": [T0], "other": has()}, "'member' a list, which is not an Assignment"),
    ],
)
def test_what_would_break_the_group_is_refused_by_name(gives: Given, words: str) -> None:
    mine = Mine(lambda: gives)
    one = led(mine)
    with pytest.raises(InvalidAssignmentError) as raised:
        one.poll()
    assert str(raised.value).startswith("assignor 'mine'") and words in str(raised.value)
    assert one.requests("sync_group") == []
    assert one.poll() == [] and one.sent("join_group")


def test_a_partition_that_its_owner_has_not_given_up_is_not_moved() -> None:
    members = {
        "member": Subscription(("t",), owned_partitions=(T0, T1), generation_id=1),
        "other": Subscription(("t",), generation_id=1),
    }
    mine = Cooperative(lambda: {"member": has(T0), "other": has(T1)})
    one = led(mine, members)
    match = "t-1 to 'other' while 'member' owns it: assign it to no member now"
    with pytest.raises(InvalidAssignmentError, match=match):
        one.poll()
    mine.gives = lambda: {"member": has(T0), "other": has()}
    one.poll()
    elect(one, members, generation=2)
    one.poll()
    assert synced(one) == {"member": has(T0), "other": has()}


# --- the offered protocols ------------------------------------------------------------------------


class Unnamed(Mine):
    name = ""


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ([Mine, Mine], "twice: mine"),
        (["range", RangeAssignor], "twice: range"),
        ([Mine, Cooperative, "range"], "twice"),
        ([dict], "dict.* returned \\{\\}, which is not a ConsumerPartitionAssignor"),
        ([3], "3 is neither the name of an assignor nor a function or class"),
        ([Mine()], "is neither the name of an assignor nor a function or class"),
        ([Unnamed], "has no name"),
    ],
)
def test_what_cannot_be_offered(strategy: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=rf"^partition\.assignment\.strategy.*{words}"):
        Lone(partition_assignment_strategy=strategy)


def test_no_protocol_in_common() -> None:
    match = r"partition\.assignment\.strategy: range, mine have no common rebalance protocol"
    with pytest.raises(ConfigError, match=match):
        Lone(partition_assignment_strategy=["range", Cooperative])


def test_a_setting_makes_new_instances_each_time() -> None:
    settings = parse_settings({"group.id": "g", "partition.assignment.strategy": [Mine, "sticky"]})
    one, two = settings.new_assignors(), settings.new_assignors()
    assert [each.name for each in one] == ["mine", "sticky"]
    assert not {id(each) for each in one} & {id(each) for each in two}
