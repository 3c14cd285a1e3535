"""A program's member of a group, against the real machine in a thread."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from group_coordinator.pipeline.client import (
    Assignment,
    CommitFailedError,
    ConfigError,
    ConsumerPartitionAssignor,
    CoordinatorTimeoutError,
    FencedInstanceIdError,
    GroupMember,
    InconsistentGroupProtocolError,
    InvalidAssignmentError,
    InvalidSessionTimeoutError,
    MemberClosed,
    NoCatalogue,
    NoOffsetForPartitionError,
    NoTables,
    OffsetAndMetadata,
    RequestClient,
    Subscription,
    SubscriptionError,
    UnknownTopicOrPartitionError,
    member_hub,
)
from group_coordinator.pipeline.client import TopicPartition as Tp
from group_coordinator.pipeline.tables.topic_catalogue import alter_topic, create_topic
from tests.pipeline.small import SmallCoordinator
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WAIT_S = 30.0
BROKER = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1_000}
T = [Tp("t", number) for number in range(4)]


@pytest.fixture
def coordinator(root: str) -> Iterator[SmallCoordinator]:
    """A coordinator of a root with a topic of four partitions."""
    create_topic(root, "t", 4)
    running = SmallCoordinator(root, BROKER)
    yield running
    running.stop()


class Told:
    """What a member's listeners were told, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    def listeners(self) -> dict[str, Any]:
        def note(name: str) -> Callable[[tuple[Tp, ...]], None]:
            return lambda ps: self.calls.append((name, tuple(p.partition for p in ps)))

        return {name: note(name) for name in ("on_assigned", "on_revoked", "on_lost")}


@pytest.fixture
def join(root: str, coordinator: SmallCoordinator) -> Iterator[Callable[..., GroupMember]]:
    """Makes members; closes them in the end."""
    members: list[GroupMember] = []

    def make(group: str = "g", topics: Any = ("t",), **settings: Any) -> GroupMember:
        quick = {"heartbeat_interval_ms": 200, "retry_backoff_ms": 10}
        members.append(GroupMember(root, group, topics, **{**quick, **settings}))
        return members[-1]

    yield make
    for member in members:
        member.close(1_000)


def poll_all(*members: GroupMember, until: Callable[[], bool]) -> None:
    """Poll in turns until it is so."""
    wait_until(
        lambda: [member.assignment for member in members],
        until,
        WAIT_S,
        meanwhile=lambda: [member.poll_positions(20) for member in members],
        every_s=0,
    )


def share(*members: GroupMember) -> None:
    """Poll until the members share all partitions evenly, and know their positions."""
    each = len(T) // len(members)
    poll_all(
        *members, until=lambda: all(len(member.poll_positions()) == each for member in members)
    )
    assert sorted(p for member in members for p in member.assignment) == T


# --- joining --------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_member_joins_at_its_first_poll_and_owns_everything(join: Any) -> None:
    told = Told()
    member = join(**told.listeners())
    assert (member.generation, member.member_id, member.assignment) == (-1, "", ())
    assert member.poll_positions(20_000) == dict.fromkeys(T, 0)
    assert member.generation == 1
    assert member.member_id.startswith("consumer-g-")
    assert told.calls == [("on_assigned", (0, 1, 2, 3))]


def test_two_share_and_when_one_closes_the_other_has_all(join: Any) -> None:
    first_told, second_told = Told(), Told()
    first = join(**first_told.listeners())
    share(first)
    second = join(**second_told.listeners())
    share(first, second)
    second.close()
    share(first)
    owned = ("on_revoked", (0, 1)), ("on_assigned", (0, 1, 2, 3))
    assert first_told.calls[-2:] == list(owned)
    assert second_told.calls[-1] == ("on_revoked", (2, 3))


def test_cooperative_members_give_up_only_what_moves(join: Any) -> None:
    told = Told()
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    first = join(**strategy, **told.listeners())
    share(first)
    second = join(**strategy)
    stayed = set(T)

    def settled() -> bool:
        stayed.intersection_update(first.poll_positions())
        return len(second.poll_positions()) == 2

    poll_all(second, until=settled)
    assert stayed == set(first.assignment)
    revoked = [partitions for name, partitions in told.calls if name == "on_revoked"]
    assert [set(one) for one in revoked] == [{p.partition for p in second.assignment}]


def test_a_topic_that_grows_rebalances_the_group(join: Any, root: str) -> None:
    member = join()
    share(member)
    alter_topic(root, "t", 6)
    poll_all(member, until=lambda: len(member.assignment) == 6)
    assert member.topics == {"t": 6}


@pytest.mark.full
def test_a_pattern_takes_topics_as_they_come(join: Any, root: str) -> None:
    member = join(topics=re.compile("t.*"))
    share(member)
    create_topic(root, "t2", 1)
    poll_all(member, until=lambda: Tp("t2", 0) in member.assignment)


@pytest.mark.full
def test_an_unsubscribed_member_has_left_and_may_come_back(join: Any) -> None:
    told = Told()
    member = join(**told.listeners())
    share(member)
    member.unsubscribe()
    assert (member.assignment, member.member_id) == ((), "")
    assert told.calls[-1] == ("on_revoked", (0, 1, 2, 3))
    with pytest.raises(SubscriptionError, match="not subscribed to any topics"):
        member.poll_positions(0)
    member.subscribe(["t"])
    share(member)


@pytest.mark.full
def test_without_a_catalogue_topics_bring_their_numbers(root: str) -> None:
    running = SmallCoordinator(root, BROKER)
    try:
        with GroupMember(root, "g", {"t": 4, "u": 1}) as member:
            assert set(member.poll_positions(20_000)) == {*T, Tp("u", 0)}
            assert member.topics == {"t": 4, "u": 1}
    finally:
        running.stop()


# --- offsets --------------------------------------------------------------------------------------


@pytest.mark.full
def test_what_is_advanced_and_committed_is_where_the_next_one_goes_on(join: Any) -> None:
    member = join(enable_auto_commit=False)
    share(member)
    member.advance(T[0], 5)
    member.commit()
    assert member.committed(T[:2]) == {
        T[0]: OffsetAndMetadata(5, "", -1),
        T[1]: OffsetAndMetadata(0, "", -1),
    }
    member.commit({T[1]: 7, T[2]: OffsetAndMetadata(8, "why")})
    member.close()
    successor = join()
    assert successor.poll_positions(20_000) == {T[0]: 5, T[1]: 7, T[2]: 8, T[3]: 0}
    assert successor.position(T[1]) == 7


def test_positions_are_committed_automatically_at_close(join: Any) -> None:
    member = join()
    share(member)
    member.advance(T[3], 9)
    member.close()
    assert join().poll_positions(20_000)[T[3]] == 9


@pytest.mark.full
def test_before_partitions_go_their_positions_are_committed(join: Any) -> None:
    first = join()
    share(first)
    for number, partition in enumerate(T):
        first.advance(partition, 10 + number)
    second = join()
    share(first, second)
    assert {**first.poll_positions(), **second.poll_positions()} == {p: 10 + p.partition for p in T}


@pytest.mark.full
def test_an_asynchronous_commit_says_how_it_ended(join: Any) -> None:
    member = join(enable_auto_commit=False)
    share(member)
    ended: list[Any] = []
    member.commit_async({T[0]: 3}, lambda offsets, error: ended.append((offsets, error)))
    poll_all(member, until=lambda: bool(ended))
    assert ended == [({T[0]: OffsetAndMetadata(3)}, None)]
    member.commit_async({T[0]: 4}, lambda _, error: ended.append(error))
    member.commit({T[0]: 5})
    assert ended[1:] == [None], "commits made before a synchronous one end before it"


@pytest.mark.full
def test_seek_goes_anywhere_advance_only_on(join: Any) -> None:
    member = join()
    share(member)
    member.seek(T[0], 10)
    with pytest.raises(ValueError, match=r"t-0 is at 10: seek\(\) goes back to 9"):
        member.advance(T[0], 9)
    member.seek(T[0], 9)
    assert member.poll_positions()[T[0]] == 9
    with pytest.raises(SubscriptionError, match="t-7 is not assigned"):
        member.advance(Tp("t", 7), 1)


@pytest.mark.full
def test_paused_partitions_are_left_out_until_they_are_resumed(join: Any) -> None:
    member = join()
    share(member)
    member.pause(T[:3])
    assert (member.poll_positions(), member.paused) == ({T[3]: 0}, tuple(T[:3]))
    member.resume(T[:3])
    assert (len(member.poll_positions()), member.paused) == (4, ())


@pytest.mark.full
def test_the_latest_offset_is_the_programs_to_say(join: Any) -> None:
    member = join(end_offset=lambda partition: 100 + partition.partition)
    assert member.poll_positions(20_000) == {p: 100 + p.partition for p in T}
    other = join("other", auto_offset_reset="latest")
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset is 'latest'"):
        other.poll_positions(20_000)


@pytest.mark.full
def test_without_a_reset_a_missing_offset_is_an_error_until_it_is_said(join: Any) -> None:
    member = join(auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartitionError, match=r"t-0, .* auto\.offset\.reset is 'none'"):
        member.poll_positions(20_000)
    for partition in T:
        member.seek(partition, 3)
    assert member.poll_positions() == dict.fromkeys(T, 3)


# --- listeners ------------------------------------------------------------------------------------


def test_a_listener_may_commit_and_ask(join: Any) -> None:
    seen: list[Any] = []

    def revoked(partitions: tuple[Tp, ...]) -> None:
        if partitions:
            member.commit(dict.fromkeys(partitions, 42))
            seen.append(member.committed(partitions)[T[0]].offset)

    member = join(enable_auto_commit=False, on_revoked=revoked)
    share(member)
    member.close()
    assert seen == [42]


@pytest.mark.full
def test_what_a_listener_raises_comes_out_of_poll_and_the_group_goes_on(join: Any) -> None:
    def assigned(partitions: tuple[Tp, ...]) -> None:
        raise LookupError("mine")

    member = join(on_assigned=assigned)
    with pytest.raises(LookupError, match="mine"):
        member.poll_positions(20_000)
    assert member.poll_positions(20_000) == dict.fromkeys(T, 0)


@pytest.mark.full
def test_poll_is_not_for_listeners(join: Any) -> None:
    member = join(on_assigned=lambda _: member.poll_positions())
    with pytest.raises(RuntimeError, match="while the listener runs"):
        member.poll_positions(20_000)


# --- assignors of the program's own ---------------------------------------------------------------


class Mine(ConsumerPartitionAssignor):
    """Gives everything to one member, after it did what the test says."""

    name = "mine"
    does: Callable[[], Any]

    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        type(self).does()
        everything = tuple(Tp("t", number) for number in range(counts["t"]))
        return {each: Assignment(everything) for each in subscriptions}


@pytest.mark.full
def test_an_assignor_works_in_the_programs_thread_may_ask_and_heartbeats_go_on(join: Any) -> None:
    seen: list[Any] = []

    def work() -> None:
        heartbeat = member._driver._consumer._heartbeat
        before = heartbeat.session_ends_at
        seen.append((threading.current_thread(), member.committed(T[:1]), member.assignment))
        wait_until("a heartbeat is answered", lambda: heartbeat.session_ends_at > before, WAIT_S)

    Mine.does = work
    member = join(partition_assignment_strategy=[Mine])
    share(member)
    assert seen == [(threading.current_thread(), {T[0]: None}, ())]


@pytest.mark.full
def test_what_an_assignor_raises_comes_out_of_poll_and_the_group_goes_on(join: Any) -> None:
    def fail() -> None:
        raise LookupError("mine")

    Mine.does = fail
    member = join(partition_assignment_strategy=[Mine])
    for _ in range(2):
        with pytest.raises(LookupError, match="mine"):
            member.poll_positions(20_000)
    Mine.does = lambda: None
    share(member)
    other = join(partition_assignment_strategy=[Mine])
    with pytest.raises(InvalidAssignmentError, match="assignor 'mine' gave t-0 twice"):
        poll_all(member, other, until=lambda: False)


@pytest.mark.full
def test_a_strategy_that_makes_no_assignor_leaves_nothing_behind(join: Any) -> None:
    with pytest.raises(ConfigError, match="which is not a ConsumerPartitionAssignor"):
        join(partition_assignment_strategy=[dict])
    assert "heartbeats" not in [thread.name for thread in threading.enumerate()]


# --- heartbeats -----------------------------------------------------------------------------------


def test_heartbeats_go_on_while_the_program_works(join: Any) -> None:
    member = join(session_timeout_ms=1_000)
    share(member)
    id_before, limit = member.member_id, time.monotonic() + 1.3
    while time.monotonic() < limit:
        sum(range(10_000))
    member.commit()
    assert (member.member_id, member.generation) == (id_before, 1)


def test_who_does_not_poll_leaves_and_finds_out(join: Any) -> None:
    told = Told()
    member = join(max_poll_interval_ms=500, **told.listeners())
    share(member)
    poll_until(lambda: member.generation == -1)
    with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms \(500\)"):
        member.commit()
    poll_all(member, until=lambda: len(told.calls) == 3)
    everything = (0, 1, 2, 3)
    assert told.calls[1:] == [("on_lost", everything), ("on_assigned", everything)]


@pytest.mark.full
def test_an_expired_member_finds_out(join: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    member = join(session_timeout_ms=1_000, **told.listeners())
    share(member)
    lively = member_hub.MemberDriver.send_due

    def starved(driver: member_hub.MemberDriver, send: Any) -> None:
        if driver is member._driver:
            time.sleep(0.01)
        else:
            lively(driver, send)

    monkeypatch.setattr(member_hub.MemberDriver, "send_due", starved)
    other = join(session_timeout_ms=1_000)
    poll_all(other, until=lambda: len(other.assignment) == 4)
    monkeypatch.setattr(member_hub.MemberDriver, "send_due", lively)
    poll_all(member, other, until=lambda: ("on_lost", (0, 1, 2, 3)) in told.calls)
    share(member, other)


def poll_until(so: Callable[[], bool]) -> None:
    """Wait for it without polling any member."""
    wait_until("it is so without a poll", so, WAIT_S)


# --- what a person must see to --------------------------------------------------------------------


@pytest.mark.full
def test_an_unknown_topic(join: Any) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'other' in the catalogue"):
        join(topics=["t", "other"])


def test_no_catalogue(root: str) -> None:
    with pytest.raises(NoCatalogue, match="group-coordinator topics create t --partitions N"):
        GroupMember(root, "g", ["t"])


def test_a_root_without_tables(tmp_path: Any) -> None:
    with pytest.raises(NoTables, match="group-coordinator run --root"):
        GroupMember(str(tmp_path), "g", {"t": 1})


def test_settings_that_are_none(join: Any) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'session\.timeout\.ms'"):
        join(sesion_timeout_ms=1)
    with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms \(3000\) must be lower"):
        join(
            settings={"session.timeout.ms": "3000", "heartbeat.interval.ms": "3000"},
            heartbeat_interval_ms=3000,
        )


@pytest.mark.full
def test_a_session_timeout_outside_of_the_brokers_bounds(join: Any) -> None:
    member = join(session_timeout_ms=999)
    with pytest.raises(InvalidSessionTimeoutError, match=r"session\.timeout\.ms 999 is outside"):
        member.poll_positions(20_000)


@pytest.mark.full
def test_no_common_assignor(join: Any) -> None:
    share(join(partition_assignment_strategy="range"))
    other = join(partition_assignment_strategy="roundrobin")
    match = r"support none of partition\.assignment\.strategy \[roundrobin\]"
    with pytest.raises(InconsistentGroupProtocolError, match=match):
        other.poll_positions(20_000)


@pytest.mark.full
def test_an_instance_id_that_somebody_took_over(join: Any) -> None:
    first = join(group_instance_id="one")
    share(first)
    second = join(group_instance_id="one")
    assert len(second.poll_positions(20_000)) == 4
    with pytest.raises(FencedInstanceIdError, match=r"same group\.instance\.id 'one'"):
        poll_all(first, until=lambda: False)


def test_a_coordinator_that_is_not_running(root: str) -> None:
    with GroupMember(root, "g", {"t": 1}, default_api_timeout_ms=300) as member:
        match = r"within default\.api\.timeout\.ms \(300\): is one running on"
        with pytest.raises(CoordinatorTimeoutError, match=match):
            member.poll_positions(20_000)
        assert member.poll_positions(0) == {}, "it may come yet"
        with pytest.raises(CoordinatorTimeoutError, match="is the coordinator running"):
            member.committed([Tp("t", 0)])
        with pytest.raises(CoordinatorTimeoutError, match=match):
            poll_all(member, until=lambda: False)
        member.close(100)


@pytest.mark.full
def test_a_closed_member_says_so(join: Any) -> None:
    member = join()
    member.close()
    member.close()
    for call in (
        member.poll_positions,
        member.commit,
        member.unsubscribe,
        lambda: member.committed(T),
    ):
        with pytest.raises(MemberClosed, match="group 'g' is closed"):
            call()


# --- what members share ---------------------------------------------------------------------------


@pytest.mark.full
def test_the_members_of_a_process_share_their_threads(join: Any) -> None:
    members = [join(f"g{number}") for number in range(8)]
    names = [thread.name for thread in threading.enumerate()]
    for name in ("heartbeats", "topics", "response-reader", "request-producer"):
        assert names.count(name) == 1
    poll_all(*members, until=lambda: all(len(member.assignment) == 4 for member in members))
    for member in members:
        member.close()
    assert "heartbeats" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.full
def test_a_client_may_be_the_programs_own(join: Any, root: str) -> None:
    with RequestClient(root) as client:
        share(join(client=client))
        join("other", client=client).close()


@pytest.mark.full
def test_a_defect_of_one_member_is_told_to_its_user_and_to_nobody_else(
    join: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = join("broken"), join("sound")
    share(broken)

    def defect(now: int) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(broken._driver._consumer, "tick", defect)
    share(sound)
    poll_until(lambda: broken._driver._defect is not None)
    for call in (broken.poll_positions, broken.commit, broken.close):
        with pytest.raises(ZeroDivisionError):
            call()
    share(sound)
