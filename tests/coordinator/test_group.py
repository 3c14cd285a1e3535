"""The data of a group: members, leaders, protocols, subscriptions."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group.classic_group import (
    ClassicGroup,
    ClassicGroupMember,
    ParkedRequest,
)
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import JoinGroupProtocol
from tests.context import subscription

WAITING = ParkedRequest("request", 9)


def offer(*names: str, metadata: bytes = b"") -> tuple[JoinGroupProtocol, ...]:
    return tuple(JoinGroupProtocol(name, metadata) for name in names)


def member(
    member_id: str,
    *protocols: str,
    instance_id: str | None = None,
    metadata: bytes = b"",
    rebalance_ms: int = 500,
    waiting: bool = False,
) -> ClassicGroupMember:
    return ClassicGroupMember(
        member_id=member_id,
        group_instance_id=instance_id,
        client_id="client",
        client_host="host",
        rebalance_timeout_ms=rebalance_ms,
        session_timeout_ms=500,
        protocols=offer(*(protocols or ("range",)), metadata=metadata),
        awaiting_join=WAITING if waiting else None,
    )


def group_of(
    *members: ClassicGroupMember,
    state: GroupState = GroupState.PREPARING_REBALANCE,
    kind: str = "consumer",
) -> ClassicGroup:
    group = ClassicGroup("g", state=state, protocol_type=kind)
    for one in members:
        group.add(one)
    return group


# --- protocols ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "names", "supported"),
    [
        ("consumer", ["range"], True),
        ("anything", ["whatever"], True),
        ("", ["range"], False),
        ("consumer", [], False),
        ("", [], False),
    ],
)
def test_an_empty_group_takes_whoever_says_what_it_speaks(
    kind: str, names: list[str], supported: bool
) -> None:
    assert ClassicGroup("g").supports_protocols(kind, offer(*names)) is supported


@pytest.mark.parametrize(
    ("kind", "names", "supported"),
    [
        ("consumer", ["range"], True),
        ("consumer", ["other", "range"], True),
        ("consumer", ["roundrobin"], False),
        ("consumer", ["other"], False),
        ("consumer", [], False),
        ("connect", ["range"], False),
        ("", ["range"], False),
    ],
)
def test_a_group_with_members_takes_who_shares_a_protocol_with_all(
    kind: str, names: list[str], supported: bool
) -> None:
    """It is not enough to share a protocol with each of them."""
    group = group_of(member("a", "range", "roundrobin"), member("b", "range", "sticky"))
    assert group.supports_protocols(kind, offer(*names)) is supported


def test_what_a_member_supported_is_forgotten_with_it() -> None:
    group = group_of(member("a", "range", "roundrobin"), member("b", "range"))
    assert not group.supports_protocols("consumer", offer("roundrobin"))
    group.remove("b")
    assert group.supports_protocols("consumer", offer("roundrobin"))


def test_a_member_may_come_to_offer_other_protocols() -> None:
    first = member("a", "range")
    group = group_of(first, member("b", "range", "sticky"))
    group.set_protocols(first, offer("sticky"))
    assert group.supports_protocols("consumer", offer("sticky"))
    assert not group.supports_protocols("consumer", offer("range"))
    assert group.select_protocol() == "sticky"


def test_a_protocol_named_twice_counts_once() -> None:
    group = group_of(member("a", "range", "range"), member("b", "sticky", "range"))
    assert group.supported_protocols == {"range": 2, "sticky": 1}
    assert group.select_protocol() == "range"


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        ([["range"]], "range"),
        ([["range", "sticky"], ["sticky", "range"], ["sticky", "range"]], "sticky"),
        # Most would have roundrobin, but not all support it.
        ([["roundrobin", "range"], ["roundrobin", "range"], ["range"]], "range"),
        # Each votes for the first of its protocols that all support.
        ([["mine", "sticky", "range"], ["range", "sticky"], ["sticky", "range"]], "sticky"),
        # A tie: Kafka takes any of the tied, here it is the one with the first vote.
        ([["range", "sticky"], ["sticky", "range"]], "range"),
        ([["sticky", "range"], ["range", "sticky"]], "sticky"),
    ],
)
def test_the_majority_chooses_among_what_all_support(lists: list[list[str]], chosen: str) -> None:
    group = group_of(*(member(str(n), *protocols) for n, protocols in enumerate(lists)))
    assert group.select_protocol() == chosen


def test_nobody_cannot_choose() -> None:
    with pytest.raises(
        LookupError, match="group 'g' has no members, so no protocol can be selected"
    ):
        ClassicGroup("g").select_protocol()


def test_a_member_cannot_vote_for_what_it_does_not_offer() -> None:
    with pytest.raises(LookupError, match=r"'a' supports none of \['sticky'\]"):
        member("a", "range").vote({"sticky"})


def test_a_member_has_no_bytes_for_what_it_does_not_offer() -> None:
    one = member("a", "range", metadata=b"topics")
    assert one.metadata("range") == b"topics"
    with pytest.raises(LookupError, match="does not support 'sticky'"):
        one.metadata("sticky")


# --- generations --------------------------------------------------------------------------------


def test_a_generation_with_members_chooses_its_protocol() -> None:
    group = group_of(member("a", "range", "sticky"), member("b", "sticky"))
    group.begin_generation(7)
    assert (group.generation_id, group.protocol_name) == (1, "sticky")
    assert (group.state, group.state_timestamp) == (GroupState.COMPLETING_REBALANCE, 7)


def test_a_generation_without_members_is_empty_and_counts() -> None:
    """The protocol type stays because of the offsets: the group was not a simple one."""
    group = group_of()
    group.generation_id, group.protocol_name = 4, "range"
    group.begin_generation(7)
    assert (group.generation_id, group.protocol_name) == (5, None)
    assert (group.state, group.protocol_type) == (GroupState.EMPTY, "consumer")


# --- the leader -----------------------------------------------------------------------------------


def test_the_first_member_leads() -> None:
    assert group_of(member("a"), member("b")).leader_id == "a"


def test_the_longest_standing_member_succeeds() -> None:
    group = group_of(member("a"), member("b"), member("c"), member("d"))
    group.remove("b")
    assert group.leader_id == "a"
    group.remove("a")
    assert group.leader_id == "c"
    group.remove("c")
    assert group.leader_id == "d"
    group.remove("d")
    assert group.leader_id is None


@pytest.mark.parametrize(
    ("waiting", "elected", "leader"),
    [("abc", True, "a"), ("bc", True, "b"), ("c", True, "c"), ("", False, "a")],
)
def test_the_leader_is_one_of_those_who_joined(waiting: str, elected: bool, leader: str) -> None:
    group = group_of(*(member(name, waiting=name in waiting) for name in "abc"))
    assert group.elect_joined_leader() is elected
    assert group.leader_id == leader


def test_without_members_nobody_leads() -> None:
    group = group_of()
    assert group.elect_joined_leader() is False
    assert group.leader_id is None


def test_a_stored_leader_that_is_no_member_is_replaced() -> None:
    """This coordinator never writes that, but others may write the offsets topic."""
    group = group_of(member("a", waiting=True))
    group.leader_id = "nobody"
    assert group.elect_joined_leader() is True
    assert group.leader_id == "a"


# --- members ------------------------------------------------------------------------------------


def test_all_have_joined_when_all_wait_and_no_id_is_unused() -> None:
    first, second = member("a", waiting=True), member("b")
    group = group_of(first, second)
    assert not group.has_all_members_joined
    group.park_join(second, WAITING)
    assert group.has_all_members_joined
    group.pending_joins["c"] = 100
    assert not group.has_all_members_joined


def test_a_member_waits_once_however_often_it_asks() -> None:
    one = member("a")
    group = group_of(one)
    assert group.park_join(one, ParkedRequest("first", 9)) is None
    assert group.park_join(one, ParkedRequest("second", 9)) == ParkedRequest("first", 9)
    assert group.num_awaiting_join == 1
    assert group.unpark_join(one) == ParkedRequest("second", 9)
    assert group.unpark_join(one) is None
    assert group.num_awaiting_join == 0


def test_a_member_removed_waits_no_longer() -> None:
    group = group_of(member("a", waiting=True), member("b", waiting=True))
    group.remove("a")
    assert group.num_awaiting_join == 1
    assert group.has_all_members_joined


def test_the_pending_id_of_a_member_added_is_used_up() -> None:
    group = group_of()
    group.pending_joins = {"a": 100, "b": 100}
    group.add(member("a"))
    assert list(group.pending_joins) == ["b"]


def test_a_pending_id_can_be_removed() -> None:
    group = group_of(member("a"))
    group.pending_joins = {"b": 100}
    assert group.remove("b") is None
    assert not group.pending_joins
    assert list(group.members) == ["a"]


def test_a_member_removed_owes_no_sync() -> None:
    group = group_of(member("a"), member("b"))
    group.pending_syncs = ["a", "b"]
    group.remove("a")
    assert group.pending_syncs == ["b"]


def test_a_new_generation_is_owed_nothing_for_the_old_one() -> None:
    group = group_of(member("a"))
    group.pending_syncs = ["a"]
    group.begin_generation(0)
    assert group.pending_syncs == []


@pytest.mark.parametrize(
    ("member_id", "instance_id", "code"),
    [
        ("a", None, ErrorCode.NONE),
        ("s", "instance", ErrorCode.NONE),
        # A static member may use its member id alone.
        ("s", None, ErrorCode.NONE),
        ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("s", "stranger", ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", "instance", ErrorCode.FENCED_INSTANCE_ID),
        ("a", "instance", ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_whether_a_member_is_who_it_says(
    member_id: str, instance_id: str | None, code: ErrorCode
) -> None:
    group = group_of(member("a"), member("s", instance_id="instance"))
    assert group.validate_member(member_id, instance_id) is code


@pytest.mark.parametrize(
    ("timeouts", "longest"), [([], 0), ([500], 500), ([500, 900, 700], 900), ([-1], 0)]
)
def test_the_rebalance_timeout_is_the_members_largest(timeouts: list[int], longest: int) -> None:
    members = (member(str(n), rebalance_ms=ms) for n, ms in enumerate(timeouts))
    assert group_of(*members).rebalance_timeout_ms == longest


# --- static members -----------------------------------------------------------------------------


def test_a_renamed_static_member_keeps_its_place() -> None:
    group = group_of(member("a"), member("old", instance_id="instance"), member("c"))
    group.pending_syncs = ["a", "old"]
    renamed = group.rename_static("old", "new")
    assert renamed.member_id == "new"
    assert list(group.members) == ["a", "new", "c"]
    assert group.static_members == {"instance": "new"}
    assert group.leader_id == "a"
    assert group.pending_syncs == ["a", "new"]


def test_leadership_follows_the_new_id() -> None:
    group = group_of(member("old", instance_id="instance"), member("b"))
    group.rename_static("old", "new")
    assert group.leader_id == "new"


def test_an_unknown_id_cannot_be_replaced() -> None:
    group = group_of(member("a", instance_id="instance"))
    with pytest.raises(KeyError, match="nobody"):
        group.rename_static("nobody", "new")
    assert list(group.members) == ["a"]


def test_the_instance_of_a_member_removed_is_free() -> None:
    group = group_of(member("a", instance_id="instance"))
    group.remove("a")
    assert group.static_members == {}


# --- subscriptions ------------------------------------------------------------------------------


def test_the_group_is_subscribed_to_what_any_member_is() -> None:
    group = group_of(
        member("a", metadata=subscription("orders", "bills")),
        member("b", metadata=subscription("bills", "returns", version=3)),
    )
    group.begin_generation(0)
    assert group.subscribed_topics == ["bills", "orders", "returns"]
    assert group.is_subscribed("returns")
    assert not group.is_subscribed("salaries")


def test_without_members_the_group_is_known_to_be_subscribed_to_nothing() -> None:
    group = group_of()
    group.begin_generation(0)
    assert group.subscribed_topics == []
    assert not group.is_subscribed("orders")


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\x00\x00",
        subscription("orders")[:-6],
        subscription("orders")[:2] + bytes((0, 0, 0, 9)),
    ],
    ids=["nothing", "a version", "a cut-off name", "fewer topics than it says"],
)
def test_a_subscription_that_cannot_be_read_might_be_to_anything(blob: bytes) -> None:
    group = group_of(member("a", metadata=subscription("orders")), member("b", metadata=blob))
    group.begin_generation(0)
    assert group.subscribed_topics is None
    assert group.is_subscribed("salaries")


def test_only_consumers_have_subscriptions() -> None:
    group = group_of(member("a", metadata=subscription("orders")), kind="connect")
    group.begin_generation(0)
    assert group.subscribed_topics is None
    assert not group.is_subscribed("orders")


def test_before_the_first_generation_the_subscription_is_not_known() -> None:
    group = group_of(member("a", metadata=subscription("orders")))
    assert group.subscribed_topics is None
    assert group.is_subscribed("salaries")


# --- simple groups --------------------------------------------------------------------------------
