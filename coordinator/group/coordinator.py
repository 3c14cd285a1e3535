"""The group coordinator: it decides requests, timers, a load or an unload within a turn.

`turn` begins a turn over a group at a time, `decide`, `fire_due`, `load` and `unload` act within
it, as `expiry.cleanup` does, and its responses, records and events are what comes of it.

Pure: the time is an argument of every turn, how to make ids and whether the log takes a record are
arguments of the constructor. Every request is answered exactly once, at once or when it is no
longer parked. Source: Apache Kafka, GroupCoordinatorService (the checks that need no group) and
GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.coordinator.authorization import Authorizer, denial_of
from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.delete import delete_groups
from group_coordinator.coordinator.group.describe import describe_groups
from group_coordinator.coordinator.group.group import Group
from group_coordinator.coordinator.group.heartbeat import heartbeat
from group_coordinator.coordinator.group.join import join_group
from group_coordinator.coordinator.group.leave import leave_group, refuse_leave
from group_coordinator.coordinator.group.log import replay, size_limit
from group_coordinator.coordinator.group.offset_commit import offset_commit, refuse_commit
from group_coordinator.coordinator.group.offset_delete import offset_delete
from group_coordinator.coordinator.group.offset_fetch import offset_fetch
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.coordinator.group.rebalance import (
    expire_pending_syncs,
    fire_delayed_join,
    prepare,
)
from group_coordinator.coordinator.group.removal import expire_pending_join, expire_session
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.coordinator.group.sync import sync_group
from group_coordinator.coordinator.group.timers import (
    Timer,
    TimerKind,
    due_timers,
    is_running,
)
from group_coordinator.coordinator.group.turn import (
    Append,
    NewId,
    Turn,
    shape_join,
    shape_sync,
)
from group_coordinator.schemas.apis import DECIDED, version_of
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    RequestEvent,
    SyncGroupResponse,
)
from group_coordinator.schemas.records import CoordinatorRecord

GROUP_KEY_TYPE = 0
# The version of SyncGroup from which the protocol type and name are mandatory.
PROTOCOL_VERSION = 5


class Node(Struct, frozen=True):
    """A coordinator and where it is reached."""

    node_id: int
    host: str
    port: int


# Looked up once, because every request needs it, and the look-up in an Enum is slow.
_NONE = ErrorCode.NONE

Handler = Callable[[Turn, RequestEvent, Any], None]

HANDLERS: dict[str, Handler] = {
    "join_group": join_group,
    "sync_group": sync_group,
    "heartbeat": heartbeat,
    "leave_group": leave_group,
    "offset_commit": offset_commit,
    "offset_fetch": offset_fetch,
    "describe_groups": describe_groups,
    "delete_groups": delete_groups,
    "offset_delete": offset_delete,
}


class GroupCoordinator:
    """Decides for any group of any partition; keeps no group itself.

    `new_id` makes the unique part of a member id from a request id. `append_to_log` says whether
    the log takes records; by default it refuses batches over max.message.bytes. `topics` maps each
    topic to its number of partitions; None takes every name. `owner_of` names the node that
    coordinates an offsets partition, None if there is none now. `authorizer` says who may do what;
    None allows everything to everybody. That a request is its principal's is not doubted here.
    """

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        new_id: NewId,
        owner_of: Callable[[int], Node | None],
        append_to_log: Append | None = None,
        topics: dict[str, int] | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.config = config
        self.authorizer = authorizer
        self.topics = topics
        self._new_id = new_id
        self._owner_of = owner_of
        self._append_to_log = size_limit(config) if append_to_log is None else append_to_log

    # --- requests, timers, load and unload ------------------------------------------------------

    def turn(self, group_id: str, group: Group | None, now: int) -> Turn:
        """Begin a turn over a group, None if there is none, at time `now` (ms)."""
        return Turn(
            group_id,
            group,
            now,
            self.config,
            self._new_id,
            self._append_to_log,
            self.topics,
            self.authorizer,
        )

    def decide(self, turn: Turn, event: RequestEvent, ownership: ErrorCode = _NONE) -> None:
        """Decide one well-formed request within a turn, which may hold several.

        The turn's group is changed in place. `ownership` is the code that Kafka answers for the
        group's offsets partition: NONE if this coordinator owns it, NOT_COORDINATOR, or
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        turn.request_id = event.request_id
        if self.authorizer is not None and not self.authorizer.allows_event(event):
            denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
            refuse_because(turn, event, denied, denial_of(event))
            return
        if event.deadline is not None and turn.now > event.deadline:
            late = f"the request was to be decided {turn.now - event.deadline} ms earlier"
            refuse_because(turn, event, ErrorCode.REQUEST_TIMED_OUT, late)
            return
        if event.api == "find_coordinator":
            self._find_coordinator(turn, event)
            return
        code = self._check(event, ownership)
        group = turn.group
        if code is _NONE and group is not None and group.unknown_kinds is not None:
            refuse_because(turn, event, DECIDED[event.api].of_other_type, _why_unknown(group))
        elif code is _NONE:
            HANDLERS[event.api](turn, event, getattr(event, event.api))
        else:
            refuse(turn, event, code)

    def fire_due(self, turn: Turn) -> Iterator[None]:
        """Let every timer act that is due, the earliest first, and pause after each.

        The due timers are sorted once, since thousands of sessions may end together. A timer that
        an earlier one stopped is skipped. Timers that are started meanwhile and are due at once
        come after.
        """
        while turn.group is not None:
            due = due_timers(turn.group, turn.now)
            if not due:
                return
            for timer in due:
                if turn.group is not None and is_running(turn.group, timer):
                    self._fire(turn, timer)
                    yield

    def _fire(self, turn: Turn, timer: Timer) -> None:
        turn.request_id = None
        _, kind, member_id = timer
        if kind is TimerKind.SESSION:
            expire_session(turn, member_id)
        elif kind is TimerKind.PENDING_JOIN:
            expire_pending_join(turn, member_id)
        elif kind is TimerKind.PENDING_SYNC:
            expire_pending_syncs(turn)
        else:
            fire_delayed_join(turn)

    def load(self, turn: Turn, records: Iterable[CoordinatorRecord]) -> None:
        """Restore a group from its records: Stable with fresh sessions, Empty, or none at all.

        Of a group with records of unknown kinds only these are restored (`log.replay`).
        """
        turn.group = group = replay(turn.group_id, records)
        if group is None:
            return
        if group.unknown_kinds is not None:
            turn.note("loaded", f"nothing is decided for it: {_why_unknown(group)}")
            return
        for member in group.members.values():
            member.session_deadline = turn.now + member.session_timeout_ms
        turn.note(
            "loaded",
            f"{group.state.value} with {len(group.members)} members from the offsets topic",
        )
        if len(group.members) > self.config.group_max_size:
            size = f"{len(group.members)} members, {self.config.group_max_size} allowed"
            prepare(turn, f"Freshly-loaded group is over capacity ({size})")

    def unload(self, turn: Turn) -> None:
        """Give a group up: parked joins and syncs are answered NOT_COORDINATOR."""
        for member in turn.present.members.values():
            waiting = JoinGroupResponse(member_id=member.member_id)
            turn.complete_join(member, ErrorCode.NOT_COORDINATOR, waiting)
            turn.complete_sync(member, ErrorCode.NOT_COORDINATOR)
        turn.transition(GroupState.DEAD, "unloaded: another coordinator takes the partition")
        turn.note("unloaded", "another coordinator takes the partition")
        turn.group = None

    # --- parts ----------------------------------------------------------------------------------

    def _check(self, event: RequestEvent, ownership: ErrorCode) -> ErrorCode:
        """The checks that need no group, in the order of Kafka 4.1."""
        if event.api == "sync_group" and _lacks_protocol(event):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        # The other APIs accept an empty group id, as Kafka does for old clients.
        if not event.group_id and DECIDED[event.api].needs_group_id:
            return ErrorCode.INVALID_GROUP_ID
        join = event.join_group
        if event.api == "join_group" and join is not None:
            low = self.config.group_min_session_timeout_ms
            high = self.config.group_max_session_timeout_ms
            if not low <= join.session_timeout_ms <= high:
                return ErrorCode.INVALID_SESSION_TIMEOUT
        return ownership

    def _find_coordinator(self, turn: Turn, event: RequestEvent) -> None:
        body = event.find_coordinator
        partition = partition_for(event.group_id, self.config.offsets_topic_num_partitions)
        nobody = FindCoordinatorResponse(partition, -1, "", -1)
        if body is not None and body.key_type not in (None, GROUP_KEY_TYPE):
            message = f"key_type {body.key_type} is not a group's; only {GROUP_KEY_TYPE} is known"
            turn.answer(event, ErrorCode.INVALID_REQUEST, nobody, message)
            return
        node = self._owner_of(partition)
        if node is None:
            message = f"no coordinator owns offsets partition {partition} now"
            turn.answer(event, ErrorCode.COORDINATOR_NOT_AVAILABLE, nobody, message)
            return
        answer = FindCoordinatorResponse(partition, node.node_id, node.host, node.port)
        turn.answer(event, ErrorCode.NONE, answer)


def _lacks_protocol(event: RequestEvent) -> bool:
    """Whether a sync of a version that must name its protocol does not (KIP-559)."""
    sync = event.sync_group
    if sync is None:
        return False
    # Writers of plain rows name no version: they need not name a protocol either.
    if event.api_version is None or event.api_version < PROTOCOL_VERSION:
        return False
    return sync.protocol_type is None or sync.protocol_name is None


def _why_unknown(group: Group) -> str:
    return (
        f"group {group.group_id!r} is not a classic group: it has records of the kind "
        f"{group.unknown_kinds}, which this release does not know"
    )


def refuse_because(turn: Turn, event: RequestEvent, code: ErrorCode, why: str) -> None:
    """Answer a request as `refuse` does, with a reason."""
    refuse(turn, event, code)
    turn.responses.append(replace(turn.responses.pop(), error_message=why))


def refuse(turn: Turn, event: RequestEvent, code: ErrorCode) -> None:
    """Answer a request with an error before its group is looked at, in the shape of its API."""
    api = event.api
    version = version_of(event)
    if api == "join_group":
        # Kafka's checks of ownership, which come after these two, answer without the member id.
        before = code in (ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_SESSION_TIMEOUT)
        member_id = event.join_group.member_id if before and event.join_group is not None else ""
        turn.answer(event, code, shape_join(JoinGroupResponse(member_id=member_id), version))
    elif api == "sync_group":
        turn.answer(event, code, shape_sync(SyncGroupResponse(), version))
    elif api == "heartbeat" and code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # While a group loads no session is timed: Kafka answers every heartbeat NONE.
        turn.answer(event, ErrorCode.NONE, HeartbeatResponse())
    elif api == "leave_group":
        refuse_leave(turn, event, code)
    elif api == "offset_commit" and event.offset_commit is not None:
        refuse_commit(turn, event, event.offset_commit, code)
    elif api == "find_coordinator":
        partition = partition_for(event.group_id, turn.config.offsets_topic_num_partitions)
        turn.answer(event, code, FindCoordinatorResponse(partition, -1, "", -1))
    else:
        turn.answer(event, code, DECIDED[api].response())
