"""For any clients: the log alone restores the group, and each request gets exactly one response.

A handful of clients send random requests to one group on a virtual clock, over a log that now and
then refuses an append. After each step the live group is compared with the log.

These are equal:

* Committed offsets, with all their fields: always.
* A Stable or Empty group: generation, protocol type and name, leader, and the members in order with
  timeouts, client, subscription and assignment. Both states are entered with a record, and their
  stored data changes only with another one.
* A group in PreparingRebalance or CompletingRebalance: nothing is stored before the leader's sync.
  So the log still has the last Stable or Empty state, or the creation of the group.
* One exception, as in Kafka: if the record of an emptied group is refused, the group is Empty, and
  the log has the generation before until the next record.
* The time of the state is not compared: a record is written before its transition.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import msgspec
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import replace

from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group.batch import BatchSettings, new_member_uuid
from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.group_snapshot import GroupSnapshot, decode, encode
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.group.record_helpers import replay
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.coordinator.group.timers import next_deadline
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import LeavingMember, OffsetCommitPartition
from group_coordinator.schemas.records import GROUP_METADATA, GroupMetadataValue, MemberMetadata
from tests.context import GROUP_ID, RANGE, SUPERSET, Call, Context, committed, subscription
from tests.examples import examples

FIXED = examples(40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

# --- clients --------------------------------------------------------------------------------------


class Client:
    """A client: how it joins, and its last id and generation."""

    def __init__(self, version: int, instance_id: str | None, topic: str) -> None:
        self.version = version
        self.instance_id = instance_id
        self.topic = topic
        self.join: Call | None = None
        self.member_id = ""
        self.generation = -1

    def listen(self) -> None:
        """Handle the response to the last join, if it has come."""
        if self.join is None or self.join.parked:
            return
        if self.join.code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = self.join.member_id
            self.generation = self.join.generation
        elif self.join.code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.join = None


def clients() -> list[Client]:
    return [
        Client(version=3, instance_id=None, topic="foo"),
        Client(version=9, instance_id=None, topic="foo"),
        Client(version=9, instance_id=None, topic="bar"),
        Client(version=9, instance_id="static-1", topic="bar"),
        Client(version=8, instance_id="static-2", topic="foo"),
    ]


WHO = st.integers(0, 4)
WHERE = st.tuples(st.sampled_from(["foo", "bar"]), st.integers(0, 1))
JOIN = st.tuples(st.just("join"), WHO, st.sampled_from([RANGE, SUPERSET]), st.just(False))
REPLACE = st.tuples(st.just("join"), WHO, st.sampled_from([RANGE, SUPERSET]), st.just(True))
SYNC = st.tuples(st.just("sync"), WHO)
HEARTBEAT = st.tuples(st.just("heartbeat"), WHO)
LEAVE = st.tuples(st.just("leave"), WHO, st.booleans())
RETENTION = st.sampled_from([None, None, 1, 5000])
COMMIT = st.tuples(st.just("commit"), WHO, WHERE, RETENTION, st.booleans())
ADVANCE = st.tuples(st.just("advance"), st.sampled_from([1, 49, 120, 400, 1100, 2500]))
RARE = st.one_of(
    st.tuples(st.just("advance"), st.just(60_000)),
    st.tuples(st.just("delete_offsets"), WHERE),
    st.tuples(st.just("delete_group")),
    st.tuples(st.just("cleanup")),
)
# Steps of well-behaved clients together, so that generations complete in reasonable time.
JOIN_ALL, SYNC_ALL, HEARTBEAT_ALL = (
    st.tuples(st.just(name)) for name in ("join_all", "sync_all", "heartbeat_all")
)
STEPS = st.one_of(
    JOIN, JOIN, REPLACE, SYNC, HEARTBEAT, LEAVE, COMMIT, COMMIT, ADVANCE, ADVANCE, RARE,
    JOIN_ALL, JOIN_ALL, SYNC_ALL, SYNC_ALL, SYNC_ALL, HEARTBEAT_ALL,
)  # fmt: skip
# A step, and whether the log refuses its appends.
SCRIPTS = st.lists(
    st.tuples(STEPS, st.sampled_from([False] * 11 + [True])), min_size=10, max_size=60
)


class Run:
    """The execution of a script."""

    def __init__(self) -> None:
        self.ctx = Context(offsets_retention_minutes=1, group_max_size=4)
        self.clients = clients()
        self.settled: GroupMetadataValue | None = None
        self.log_is_behind = False

    def play(self, step: tuple[Any, ...], refuse: bool) -> None:
        logged = len(self.ctx.log)
        self.ctx.log_refuses = refuse
        getattr(self, step[0])(*step[1:])
        self.ctx.log_refuses = False
        for client in self.clients:
            client.listen()
        new = self.ctx.log[logged:]
        assert not (refuse and new)
        if any(record.record_type == GROUP_METADATA for record in new):
            self.log_is_behind = False
        check_invariants(self.ctx.group, self.ctx.now)
        self.check_log(refuse)

    # --- steps ----------------------------------------------------------------------------------

    def join(self, who: int, protocols: tuple[str, ...], anew: bool) -> None:
        client = self.clients[who]
        client.join = self.ctx.join(
            "" if anew else client.member_id,
            client.instance_id,
            protocols=protocols,
            metadata=subscription(client.topic),
            version=client.version,
            session_ms=1500 + 100 * who,
            rebalance_ms=2000 + 100 * who,
        )

    def join_all(self) -> None:
        """Let all members and the first two clients join again, until the rebalance ends."""
        for who, client in enumerate(self.clients):
            if client.member_id or who < 2:
                self.join(who, RANGE, anew=False)
                client.listen()
                if client.join is None and client.generation == -1 and client.member_id:
                    self.join(who, RANGE, anew=False)
        self.ctx.advance(120)
        for client in self.clients:
            client.listen()

    def sync(self, who: int) -> None:
        client = self.clients[who]
        parts = {one.member_id: one.topic.encode() for one in self.clients if one.member_id}
        self.ctx.sync(
            client.member_id,
            parts,
            generation=client.generation,
            instance_id=client.instance_id,
        )

    def sync_all(self) -> None:
        for who in range(len(self.clients)):
            self.sync(who)

    def heartbeat(self, who: int) -> None:
        client = self.clients[who]
        self.ctx.heartbeat(client.member_id, client.generation, client.instance_id)

    def heartbeat_all(self) -> None:
        for who in range(len(self.clients)):
            self.heartbeat(who)

    def leave(self, who: int, by_instance: bool) -> None:
        client = self.clients[who]
        member_id = "" if by_instance else client.member_id
        self.ctx.leave(LeavingMember(member_id, client.instance_id, "bye"))

    def commit(
        self, who: int, where: tuple[str, int], retention_ms: int | None, outside: bool
    ) -> None:
        client = self.clients[who]
        offset = OffsetCommitPartition(
            where[1], len(self.ctx.calls), who, committed_metadata="x" * who
        )
        self.ctx.commit(
            {where: offset},
            "" if outside else client.member_id,
            generation=-1 if outside else client.generation,
            instance_id=None if outside else client.instance_id,
            retention_ms=retention_ms,
        )

    def delete_offsets(self, where: tuple[str, int]) -> None:
        self.ctx.delete_offsets({where[0]: [where[1]]})

    def delete_group(self) -> None:
        self.ctx.delete_group()

    def cleanup(self) -> None:
        self.ctx.cleanup()

    def advance(self, ms: int) -> None:
        self.ctx.advance(ms)

    # --- the log --------------------------------------------------------------------------------

    def check_log(self, refused: bool) -> None:
        group, stored = self.ctx.group, self.last_stored()
        again = replay(GROUP_ID, self.ctx.log)
        assert committed(again) == committed(group)
        assert hard_state(again) == stored
        if group is None:
            assert stored is None
            assert again is None
            self.settled = None
        elif group.state in (GroupState.STABLE, GroupState.EMPTY):
            if refused and hard_state(group) != stored:
                assert group.state is GroupState.EMPTY
                assert stored == self.settled
                self.log_is_behind = True
            if not self.log_is_behind:
                assert hard_state(group) == stored
            assert group.recorded == (stored is not None)
            self.settled = stored
        else:
            assert stored == self.settled or stored == created()
            self.settled = stored
        assert again is None or again.recorded == (stored is not None)

    def last_stored(self) -> GroupMetadataValue | None:
        """The last group record of the log, without the time of its state."""
        for record in reversed(self.ctx.log):
            if record.record_type == GROUP_METADATA:
                value = record.group_metadata
                if value is None:
                    return None
                return msgspec.structs.replace(value, current_state_timestamp=-1)
        return None


def created() -> GroupMetadataValue:
    return GroupMetadataValue("", 0, None, None, -1, ())


def hard_state(group: ClassicGroup | None) -> GroupMetadataValue | None:
    """Return the stored part of a group, made from the group itself."""
    if group is None or not group.recorded:
        return None
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=-1,
        members=tuple(
            MemberMetadata(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(group.protocol_name),
                member.assignment,
            )
            for member in group.members.values()
        ),
    )


# --- what holds at any time -----------------------------------------------------------------------


def check_invariants(group: ClassicGroup | None, now: int) -> None:
    if group is None:
        return
    members = group.members
    state = group.state
    assert state is not GroupState.DEAD
    assert all(member_id == member.member_id for member_id, member in members.items())
    # Counts and indexes equal a recount.
    assert group.num_awaiting_join == sum(m.awaiting_join is not None for m in members.values())
    offered = Counter(name for m in members.values() for name in {p.name for p in m.protocols})
    assert group.supported_protocols == dict(offered)
    assert group.static_members == {
        m.group_instance_id: m.member_id for m in members.values() if m.is_static
    }
    assert set(group.pending_joins).isdisjoint(members)
    assert len(set(group.pending_syncs)) == len(group.pending_syncs)
    # A group with members has a leader among them.
    assert (group.leader_id in members) if members else (group.leader_id is None)
    assert state is not GroupState.EMPTY or not members
    # Requests wait only if something will answer them.
    waits_join = state is GroupState.PREPARING_REBALANCE
    waits_sync = state is GroupState.COMPLETING_REBALANCE
    assert waits_join or group.num_awaiting_join == 0
    assert waits_sync or all(m.awaiting_sync is None for m in members.values())
    # No deadline without a cause, no cause without a deadline.
    assert (group.delayed_join is not None) == waits_join
    owed = bool(group.pending_syncs) and state in (
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
    )
    assert (group.sync_deadline is not None) == owed
    assert set(group.pending_syncs) <= set(members)
    for member in members.values():
        assert member.session_deadline is not None or member.has_satisfied_heartbeat
    due = next_deadline(group)
    assert due is None or due >= now
    # A generation has a protocol that all its members support.
    if state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        assert group.protocol_name is not None
        assert offered[group.protocol_name] == len(members) > 0
    assert all(partitions for partitions in group.offsets.values())


# --- the properties -------------------------------------------------------------------------------


@FIXED
@given(SCRIPTS)
def test_the_log_brings_the_group_back_and_every_request_gets_one_answer(
    script: list[tuple[tuple[Any, ...], bool]],
) -> None:
    run = Run()
    for step, refuse in script:
        # A second response to one request fails in the context itself.
        run.play(step, refuse)
    run.ctx.unload()
    assert [call.request for call in run.ctx.calls.values() if call.parked] == []


@FIXED
@given(SCRIPTS)
def test_a_snapshot_comes_back_as_the_group_it_was_taken_of(
    script: list[tuple[tuple[Any, ...], bool]],
) -> None:
    run = Run()
    for step, refuse in script:
        run.play(step, refuse)
        snapshot = GroupSnapshot(group=run.ctx.group)
        again = decode(encode(snapshot))
        assert again == snapshot
        # The next step is taken by the restored group.
        run.ctx.group = again.group


# --- batches --------------------------------------------------------------------------------------


def member_of(number: int) -> str:
    """Return the id that request `number` gets if it is a join."""
    return f"client-{new_member_uuid(f'request-{number}')}"


def body_of(api: str, number: int, about: int) -> dict[str, Any]:
    member_id = member_of(about)
    generation = number % 3
    if api == "join_group":
        return {
            "session_timeout_ms": 6000 + about,
            "rebalance_timeout_ms": 8000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": ""}],
            "member_id": "" if number % 2 else member_id,
        }
    if api == "offset_commit":
        return {
            "generation_id": generation - 1,
            "member_id": member_id if generation else "",
            "topics": [
                {
                    "name": "foo",
                    "partitions": [{"partition_index": about, "committed_offset": number}],
                }
            ],
        }
    if api == "leave_group":
        return {"members": [{"member_id": member_id}]}
    return {"generation_id": generation, "member_id": member_id}


APIS = st.sampled_from(
    ["join_group"] * 4
    + ["sync_group", "heartbeat", "heartbeat", "leave_group", "offset_commit"]
    + ["offset_fetch", "describe_groups", "delete_groups", "nonsense"]
)
EVENTS = st.tuples(APIS, st.integers(0, 60), st.integers(0, 8), st.sampled_from([3, 9]))
BATCHES = st.lists(
    st.tuples(st.sampled_from([1, 500, 3000, 7000, 9000, 700_000]), st.lists(EVENTS, max_size=8)),
    max_size=12,
)


def event_text(api: str, number: int, about: int, version: int) -> str:
    event: dict[str, Any] = {
        "request_id": f"request-{number}",
        "group_id": GROUP_ID,
        "api": api,
        "client_id": "client",
        api: body_of(api, number, about),
    }
    if api == "join_group":
        event["api_version"] = version
    return msgspec.json.encode(event).decode()


@FIXED
@given(BATCHES, st.integers(0, 20_000))
def test_the_same_batches_give_the_same_bytes(
    batches: list[tuple[int, list[tuple[str, int, int, int]]]], restarted_at: int
) -> None:
    texts, sent = [], defaultdict(list)
    now = 0
    for gap, events in batches:
        now += gap
        texts.append((now, [event_text(*event) for event in events]))
        for _, number, *_ in events:
            sent[f"request-{number}"].append(now)

    config = parse_config({"group.initial.rebalance.delay.ms": 100})
    batch_settings = BatchSettings(config, start_epoch=0)

    def run() -> tuple[list[bytes], Counter[str]]:
        state, seen, answers = None, [], Counter[str]()
        for now, events in texts:
            machine = BatchMachine(replace(batch_settings, start_epoch=int(now >= restarted_at)))
            result = machine.process(GROUP_ID, state, events, now)
            state = result.state
            seen.append(msgspec.msgpack.encode((result.state, result.deadline, result.output)))
            for response in result.output.responses if result.output else ():
                answers[response.request_id] += 1
            if state is not None:
                check_invariants(decode(state).group, 0)
        return seen, answers

    first, answers = run()
    assert run()[0] == first
    # No request is answered twice, unless it was sent again after it was forgotten.
    for request_id, times in sent.items():
        assert answers[request_id] <= 1 or times[-1] - times[0] >= batch_settings.dedup_window_ms
