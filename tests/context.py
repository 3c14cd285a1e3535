"""A coordinator on a virtual clock with a log in memory, and helpers named after the protocol.

    ctx = Context()
    leader = ctx.join()                  # a Call: parked, or answered
    ctx.advance(51)                      # timers due on the way fire at their own deadlines
    assert leader.code == 0
    ctx.sync(leader, {leader.member_id: b"everything"})
    assert ctx.heartbeat(leader).code == 0

The constants are those of Kafka's GroupCoordinatorTest, so that tests can use its timings.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from group_coordinator.coordinator.config import GroupCoordinatorConfig, parse_config
from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.coordinator import GroupCoordinator, Node
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.offset_deletion import cleanup
from group_coordinator.coordinator.group.record_helpers import size_limit
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.coordinator.group.timers import next_deadline
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.records import CoordinatorRecord, GroupEvent, OffsetCommitValue

GROUP_ID = "groupId"
CLIENT_ID = "clientId"
CLIENT_HOST = "clientHost"
PROTOCOL_TYPE = "consumer"
SESSION_MS = 500
REBALANCE_MS = 500
INITIAL_DELAY_MS = 50
RANGE = ("range",)
SUPERSET = ("range", "roundrobin")
# A version of JoinGroup with which members join in one step, and one with the two-step join.
ONE_STEP = 3
TWO_STEP = 9
# Kafka's error for a partition of another coordinator, and for one that is being loaded.
NOT_OWNED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

KAFKA_TEST_SETTINGS: dict[str, Any] = {
    "group.min.session.timeout.ms": 10,
    "group.max.session.timeout.ms": 600_000,
    "group.max.size": 4,
    "group.initial.rebalance.delay.ms": INITIAL_DELAY_MS,
}


class Call:
    """One request, and its response once it has arrived."""

    def __init__(self, request: m.RequestEvent) -> None:
        self.request = request
        self.responses: list[m.Response] = []

    def __repr__(self) -> str:
        errors = [ErrorCode(each.error_code).name for each in self.responses] or ["parked"]
        return f"Call({self.request.request_id}: {self.request.api}, {', '.join(errors)})"

    @property
    def parked(self) -> bool:
        """Whether the response is still missing."""
        return not self.responses

    @property
    def response(self) -> m.Response:
        """The response; fails if there is none yet, or more than one."""
        assert len(self.responses) == 1, f"{len(self.responses)} answers to {self.request}"
        return self.responses[0]

    @property
    def code(self) -> int:
        """The response's error code."""
        return self.response.error_code

    @property
    def body(self) -> Any:
        """The response's body."""
        return getattr(self.response, self.request.api)

    @property
    def member_id(self) -> str:
        """A join's member id: of the response, otherwise of the request."""
        assert self.request.join_group is not None
        if self.responses and self.body is not None and self.body.member_id:
            return str(self.body.member_id)
        return self.request.join_group.member_id

    @property
    def generation(self) -> int:
        """A join's generation."""
        return int(self.body.generation_id)

    @property
    def assignment(self) -> bytes:
        """A sync's assignment."""
        return bytes(self.body.assignment)

    @property
    def partition_codes(self) -> list[int]:
        """The error codes of a commit's, fetch's or deletion's partitions, in order."""
        return [p.error_code for topic in self.body.topics for p in topic.partitions]

    @property
    def member_codes(self) -> list[int]:
        """The error codes of a leave's members, in order."""
        return [member.error_code for member in self.body.members]


class Context:
    """One group's coordinator. `group` is None without a group; `log` has the stored records."""

    def __init__(self, group_id: str = GROUP_ID, **settings: Any) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.config: GroupCoordinatorConfig = parse_config({**KAFKA_TEST_SETTINGS, **named})
        self.group_id = group_id
        self.now = 0
        self.group: ClassicGroup | None = None
        # The error code for the group's partition: NONE, because this coordinator owns it.
        self.ownership = ErrorCode.NONE
        self.node: Node | None = Node(0, "localhost", 9092)
        self.log: list[CoordinatorRecord] = []
        self.events: list[GroupEvent] = []
        self.calls: dict[str, Call] = {}
        self.log_refuses = False
        self._limit = size_limit(self.config)
        self.coordinator = GroupCoordinator(
            self.config,
            new_id=lambda request_id: str(uuid.uuid5(uuid.NAMESPACE_OID, request_id)),
            owner_of=lambda _partition: self.node,
            append_to_log=self._append,
        )

    def _append(self, records: Sequence[CoordinatorRecord]) -> ErrorCode:
        """Append to the log, with its size limit; a test can make it fail by `log_refuses`."""
        if self.log_refuses:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return self._limit(records)

    # --- the machine ----------------------------------------------------------------------------

    def send(self, api: str, body: Any, version: int | None = None, **fields: Any) -> Call:
        """Send any request now."""
        fields = {"client_id": CLIENT_ID, "client_host": CLIENT_HOST, **fields}
        request = m.RequestEvent(
            request_id=f"request-{len(self.calls) + 1}",
            group_id=fields.pop("group_id", self.group_id),
            api=api,
            api_version=version,
            **{api: body},
            **fields,
        )
        call = self.calls[request.request_id] = Call(request)
        self.decide(request)
        return call

    def decide(self, request: m.RequestEvent) -> None:
        """Decide a request that arrives now."""
        decision = self.begin_decision(request.group_id)
        self.coordinator.decide(decision, request, self.ownership)
        self._take(decision)

    def begin_decision(self, group_id: str | None = None) -> Decision:
        """Begin a decision on the group now."""
        return self.coordinator.begin_decision(group_id or self.group_id, self.group, self.now)

    def advance(self, ms: int) -> None:
        """Advance the clock; timers that become due fire at exactly their own time."""
        until = self.now + ms
        while self.group is not None:
            decision = self.begin_decision()
            for _ in self.coordinator.fire_due(decision):
                pass
            self._take(decision)
            deadline = self.deadline
            if deadline is None or deadline > until:
                break
            self.now = max(self.now, deadline)
        self.now = until

    def cleanup(self) -> None:
        """Run the offset-expiry task once."""
        decision = self.begin_decision()
        cleanup(decision)
        self._take(decision)

    def unload(self) -> None:
        """Unload the group."""
        if self.group is not None:
            decision = self.begin_decision()
            self.coordinator.unload(decision)
            self._take(decision)

    def load(self, records: Iterable[CoordinatorRecord] | None = None) -> None:
        """Load the group, from these records or from the whole log."""
        logged = self.log if records is None else records
        decision = self.begin_decision()
        self.coordinator.load(decision, list(logged))
        self._take(decision)

    def _take(self, decision: Decision) -> None:
        self.group = decision.group
        for record in decision.records:
            self.log.append(msgspec.structs.replace(record, log_offset=len(self.log)))
        self.events.extend(decision.events)
        for response in decision.responses:
            call = self.calls[response.request_id]
            assert call.parked, f"a second answer to {call.request}: {response}"
            call.responses.append(response)

    # --- requests -------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        instance_id: str | None = None,
        *,
        protocols: Iterable[str] = RANGE,
        metadata: bytes = b"",
        protocol_type: str = PROTOCOL_TYPE,
        session_ms: int = SESSION_MS,
        rebalance_ms: int | None = REBALANCE_MS,
        version: int | None = ONE_STEP,
        reason: str | None = None,
        **fields: Any,
    ) -> Call:
        """Send JoinGroup; it needs one step unless `version` requires two."""
        body = m.JoinGroupRequest(
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=tuple(m.JoinGroupProtocol(name, metadata) for name in protocols),
            reason=reason,
        )
        return self.send("join_group", body, version, **fields)

    def two_step_join(self, **options: Any) -> Call:
        """Send both joins of a dynamic member: the first returns its id (79). No time passes."""
        first = self.join(version=TWO_STEP, **options)
        assert first.code == ErrorCode.MEMBER_ID_REQUIRED
        return self.join(first.member_id, version=TWO_STEP, **options)

    def dynamic_join(self, **options: Any) -> Call:
        """Join as Kafka's dynamic join helper: both steps, then the initial delay passes."""
        call = self.two_step_join(**options)
        self.advance(INITIAL_DELAY_MS + 1)
        return call

    def sync(
        self,
        member: Call | str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        version: int | None = None,
    ) -> Call:
        """Send SyncGroup, by default with the member and generation of a join."""
        body = m.SyncGroupRequest(
            generation_id=self._generation(member, generation),
            member_id=_id(member),
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple(
                m.SyncGroupAssignment(member_id, assignment)
                for member_id, assignment in (assignments or {}).items()
            ),
        )
        return self.send("sync_group", body, version)

    def heartbeat(
        self, member: Call | str, generation: int | None = None, instance_id: str | None = None
    ) -> Call:
        """Send Heartbeat, by default with the member and generation of a join."""
        body = m.HeartbeatRequest(self._generation(member, generation), _id(member), instance_id)
        return self.send("heartbeat", body)

    def leave(self, *members: Call | str | m.LeavingMember, version: int | None = None) -> Call:
        """Send LeaveGroup for one or several members."""
        leaving = tuple(
            one if isinstance(one, m.LeavingMember) else m.LeavingMember(_id(one))
            for one in members
        )
        return self.send("leave_group", m.LeaveGroupRequest(leaving), version)

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int | m.OffsetCommitPartition],
        member: Call | str = "",
        *,
        generation: int | None = None,
        instance_id: str | None = None,
        retention_ms: int | None = None,
        version: int | None = None,
    ) -> Call:
        """Send OffsetCommit of {(topic, partition): offset}; by default as a simple consumer."""
        if generation is None and isinstance(member, str):
            generation = m.NO_GENERATION
        topics: dict[str, list[m.OffsetCommitPartition]] = {}
        for (topic, index), value in offsets.items():
            if isinstance(value, int):
                value = m.OffsetCommitPartition(index, value)
            topics.setdefault(topic, []).append(value)
        body = m.OffsetCommitRequest(
            generation_id=self._generation(member, generation),
            member_id=_id(member),
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=tuple(m.OffsetCommitTopic(name, tuple(ps)) for name, ps in topics.items()),
        )
        return self.send("offset_commit", body, version)

    def fetch(
        self,
        topics: Mapping[str, Iterable[int]] | None = None,
        version: int | None = None,
        require_stable: bool = False,
    ) -> Call:
        """Send OffsetFetch of {topic: partitions}, or of all."""
        asked = None
        if topics is not None:
            asked = tuple(m.OffsetFetchTopic(name, tuple(ps)) for name, ps in topics.items())
        return self.send("offset_fetch", m.OffsetFetchRequest(asked, require_stable), version)

    def fetched(self) -> dict[tuple[str, int], int]:
        """Return all committed offsets, as OffsetFetch returns them."""
        return {
            (topic.name, p.partition_index): p.committed_offset
            for topic in self.fetch().body.topics
            for p in topic.partitions
        }

    def describe(self, version: int | None = 5) -> Call:
        """Send DescribeGroups; by default in a version that describes a missing group as "Dead"."""
        return self.send("describe_groups", m.DescribeGroupsRequest(), version)

    def delete_group(self) -> Call:
        """Send DeleteGroups."""
        return self.send("delete_groups", m.DeleteGroupsRequest())

    def delete_offsets(self, topics: Mapping[str, Iterable[int]]) -> Call:
        """Send OffsetDelete of {topic: partitions}."""
        asked = tuple(m.OffsetDeleteTopic(name, tuple(ps)) for name, ps in topics.items())
        return self.send("offset_delete", m.OffsetDeleteRequest(asked))

    # --- situations -----------------------------------------------------------------------------

    def stable_group(self, **options: Any) -> Call:
        """Create a group with one dynamic member, joined and synced; return its join."""
        leader = self.dynamic_join(**options)
        assert self.sync(leader, {leader.member_id: b""}).code == ErrorCode.NONE
        return leader

    def stable_pair(self) -> tuple[Call, Call]:
        """Create a Stable group of two dynamic members; return the joins, the leader's first."""
        leader, follower = self.join(), self.join()
        self.advance(2 * INITIAL_DELAY_MS + 1)
        assert leader.code == follower.code == ErrorCode.NONE
        self.sync(leader, {leader.member_id: b"leader", follower.member_id: b"follower"})
        self.sync(follower)
        return leader, follower

    def static_pair(self, **options: Any) -> tuple[Call, Call]:
        """Create Kafka's static pair: "leader" and "follower" of a Stable generation 1."""
        options = {"protocols": SUPERSET, "version": TWO_STEP, **options}
        leader = self.join(instance_id="leader", **options)
        follower = self.join(instance_id="follower", **options)
        self.advance(2 * INITIAL_DELAY_MS + 1)
        assert leader.body.leader == leader.member_id
        assignment = {leader.member_id: b"leader", follower.member_id: b"follower"}
        self.sync(leader, assignment, instance_id="leader")
        self.sync(follower, instance_id="follower")
        assert self.state is GroupState.STABLE
        return leader, follower

    # --- questions ------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        """The group's state; Dead if there is none."""
        return GroupState.DEAD if self.group is None else self.group.state

    @property
    def deadline(self) -> int | None:
        """The time at which the group's next timer is due; None without a timer."""
        return None if self.group is None else next_deadline(self.group)

    @property
    def members(self) -> list[str]:
        """The ids of the members, in the order of joining."""
        return [] if self.group is None else list(self.group.members)

    def event_names(self) -> list[str]:
        """Return the names of the audit events."""
        return [event.event for event in self.events]

    def _generation(self, member: Call | str, generation: int | None) -> int:
        if generation is not None:
            return generation
        if isinstance(member, Call):
            return member.generation
        return 1 if self.group is None else self.group.generation_id


def subscription(*topics: str, user_data: bytes = b"", version: int = 1) -> bytes:
    """Return a consumer's metadata as Kafka's clients send it, without owned partitions."""
    names = b"".join(len(name.encode()).to_bytes(2, "big") + name.encode() for name in topics)
    counted = len(topics).to_bytes(4, "big") + names
    data = len(user_data).to_bytes(4, "big") + user_data
    return version.to_bytes(2, "big", signed=True) + counted + data


def is_simple(group: ClassicGroup) -> bool:
    """Return whether it only stores offsets, for consumers that assign their own partitions."""
    return group.protocol_type is None and group.state is GroupState.EMPTY


def committed(group: ClassicGroup | None) -> dict[tuple[str, int], OffsetCommitValue]:
    """Return a group's committed offsets as one flat map."""
    offsets = {} if group is None else group.offsets
    return {(topic, index): v for topic, ps in offsets.items() for index, v in ps.items()}


def _id(member: Call | str) -> str:
    return member if isinstance(member, str) else member.member_id
