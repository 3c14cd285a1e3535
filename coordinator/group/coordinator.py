"""The group coordinator: decide requests and timers of a group, load it, and unload it.

`begin_decision` returns a `Decision` on a group at a time. `decide`, `fire_due`, `load`, `unload`
and `offset_deletion.cleanup` add responses, records and events to it and change its group.

Pure: the time, the generator of ids and the log's acceptance of records are arguments. Every
request is answered exactly once: at once, or when it is no longer parked. Source: Apache Kafka,
GroupCoordinatorService (the checks that need no group) and GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.coordinator.authorization import Authorizer, denial_of
from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.decision import (
    Append,
    Decision,
    NewId,
    shape_join,
    shape_sync,
)
from group_coordinator.coordinator.group.group_admin import delete_groups, describe_groups
from group_coordinator.coordinator.group.heartbeat import heartbeat
from group_coordinator.coordinator.group.join import join_group
from group_coordinator.coordinator.group.leave import (
    expire_pending_join,
    expire_session,
    leave_group,
    refuse_leave,
)
from group_coordinator.coordinator.group.offset_commit import (
    offset_commit,
    refuse_commit,
    renew_session,
)
from group_coordinator.coordinator.group.offset_deletion import offset_delete
from group_coordinator.coordinator.group.offset_fetch import offset_fetch
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.coordinator.group.rebalance import (
    expire_pending_syncs,
    fire_delayed_join,
    prepare,
)
from group_coordinator.coordinator.group.record_helpers import replay, size_limit
from group_coordinator.coordinator.group.state import DEAD
from group_coordinator.coordinator.group.sync import sync_group
from group_coordinator.coordinator.group.timers import (
    Timer,
    TimerKind,
    due_timers,
    is_running,
)
from group_coordinator.schemas.apis import DECIDED, version_of
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import (
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    RequestEvent,
    SyncGroupResponse,
)
from group_coordinator.schemas.records import CoordinatorRecord

GROUP_KEY_TYPE = 0
# The APIs that `GroupCoordinator._check` checks even if the group id is not empty.
_CHECKED = frozenset({"sync_group", "join_group"})
# The lowest version of SyncGroup that requires the protocol type and name.
PROTOCOL_VERSION = 5


class Node(Struct, frozen=True):
    """A coordinator and its address."""

    node_id: int
    host: str
    port: int


Handler = Callable[[Decision, RequestEvent, Any], None]

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
    """The decisions for any group of any offsets partition; the groups are kept by the caller.

    `new_id` makes the unique part of a member id from a request id. `append_to_log` returns NONE,
    or the code with which the log refuses records; by default it refuses batches over
    max.message.bytes. `topics` maps each topic to its number of partitions; None accepts every
    name. `owner_of` returns the node that coordinates an offsets partition, None if no node does
    now. `authorizer` None allows every operation. The caller must have verified a request's
    principal (`coordinator.group.batch`).
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

    def begin_decision(self, group_id: str, group: ClassicGroup | None, now: int) -> Decision:
        """Begin a decision on a group (None: it does not exist) at time `now` (ms)."""
        return Decision(
            group_id,
            group,
            now,
            self.config,
            self._new_id,
            self._append_to_log,
            self.topics,
            self.authorizer,
        )

    def decide(self, decision: Decision, event: RequestEvent, ownership: ErrorCode = NONE) -> None:
        """Decide one well-formed request; a `Decision` may hold several.

        The group is changed in place. `ownership` is the code that Kafka answers for the
        group's offsets partition: NONE if this coordinator owns it, NOT_COORDINATOR, or
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        decision.request_id = event.request_id
        if self.authorizer is not None and not self.authorizer.allows_event(event):
            denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
            refuse_because(decision, event, denied, denial_of(event))
            return
        if event.deadline is not None and decision.now > event.deadline:
            if event.offset_commit is not None:
                renew_session(decision, event, event.offset_commit, event.deadline)
            late = f"the request was to be decided {decision.now - event.deadline} ms earlier"
            refuse_because(decision, event, ErrorCode.REQUEST_TIMED_OUT, late)
            return
        if event.api == "find_coordinator":
            self._find_coordinator(decision, event)
            return
        # Most requests are heartbeats, which need no further check.
        has_checks = event.api in _CHECKED or not event.group_id
        code = self._check(event, ownership) if has_checks else ownership
        group = decision.group
        if code is NONE and group is not None and group.unknown_kinds is not None:
            refuse_because(decision, event, DECIDED[event.api].of_other_type, _why_unknown(group))
        elif code is NONE:
            HANDLERS[event.api](decision, event, getattr(event, event.api))
        else:
            refuse(decision, event, code)

    def fire_due(self, decision: Decision) -> Iterator[None]:
        """Fire every due timer, the earliest first, and yield after each.

        The due timers are sorted once, because thousands of sessions may end together. A timer that
        an earlier one stopped is skipped. Timers that are started meanwhile and are already due
        fire afterwards.
        """
        while decision.group is not None:
            due = due_timers(decision.group, decision.now)
            if not due:
                return
            for timer in due:
                if decision.group is not None and is_running(decision.group, timer):
                    self._fire(decision, timer)
                    yield

    def _fire(self, decision: Decision, timer: Timer) -> None:
        decision.request_id = None
        _, kind, member_id = timer
        if kind is TimerKind.SESSION:
            expire_session(decision, member_id)
        elif kind is TimerKind.PENDING_JOIN:
            expire_pending_join(decision, member_id)
        elif kind is TimerKind.PENDING_SYNC:
            expire_pending_syncs(decision)
        else:
            fire_delayed_join(decision)

    def load(self, decision: Decision, records: Iterable[CoordinatorRecord]) -> None:
        """Restore a group from its records: Stable with new sessions, Empty, or no group.

        A group with records of unknown kinds is restored without members and offsets
        (`record_helpers.replay`).
        """
        decision.group = group = replay(decision.group_id, records)
        if group is None:
            return
        if group.unknown_kinds is not None:
            decision.note("loaded", f"nothing is decided for it: {_why_unknown(group)}")
            return
        for member in group.members.values():
            member.session_deadline = decision.now + member.session_timeout_ms
        decision.note(
            "loaded",
            f"{group.state.value} with {len(group.members)} members from the offsets topic",
        )
        if len(group.members) > self.config.group_max_size:
            size = f"{len(group.members)} members, {self.config.group_max_size} allowed"
            prepare(decision, f"Freshly-loaded group is over capacity ({size})")

    def unload(self, decision: Decision) -> None:
        """Unload a group: answer its parked joins and syncs NOT_COORDINATOR, then drop it."""
        for member in decision.present.members.values():
            waiting = JoinGroupResponse(member_id=member.member_id)
            decision.complete_join(member, ErrorCode.NOT_COORDINATOR, waiting)
            decision.complete_sync(member, ErrorCode.NOT_COORDINATOR)
        decision.transition(DEAD, "unloaded: another coordinator takes the partition")
        decision.note("unloaded", "another coordinator takes the partition")
        decision.group = None

    # --- parts ----------------------------------------------------------------------------------

    def _check(self, event: RequestEvent, ownership: ErrorCode) -> ErrorCode:
        """Run the checks that need no group, in the order of Kafka 4.1."""
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

    def _find_coordinator(self, decision: Decision, event: RequestEvent) -> None:
        body = event.find_coordinator
        partition = partition_for(event.group_id, self.config.offsets_topic_num_partitions)
        no_node = FindCoordinatorResponse(partition, -1, "", -1)
        if body is not None and body.key_type not in (None, GROUP_KEY_TYPE):
            message = f"key_type {body.key_type} is not a group's; only {GROUP_KEY_TYPE} is known"
            decision.answer(event, ErrorCode.INVALID_REQUEST, no_node, message)
            return
        node = self._owner_of(partition)
        if node is None:
            message = f"no coordinator owns offsets partition {partition} now"
            decision.answer(event, ErrorCode.COORDINATOR_NOT_AVAILABLE, no_node, message)
            return
        answer = FindCoordinatorResponse(partition, node.node_id, node.host, node.port)
        decision.answer(event, NONE, answer)


def _lacks_protocol(event: RequestEvent) -> bool:
    """Whether a sync lacks the protocol type or name that its version requires (KIP-559)."""
    sync = event.sync_group
    if sync is None:
        return False
    # Rows written without an API version need not name a protocol either.
    if event.api_version is None or event.api_version < PROTOCOL_VERSION:
        return False
    return sync.protocol_type is None or sync.protocol_name is None


def _why_unknown(group: ClassicGroup) -> str:
    return (
        f"group {group.group_id!r} is not a classic group: it has records of the kind "
        f"{group.unknown_kinds}, which this release does not know"
    )


def refuse_because(decision: Decision, event: RequestEvent, code: ErrorCode, why: str) -> None:
    """Answer a request as `refuse` does, with an error message."""
    refuse(decision, event, code)
    decision.responses.append(replace(decision.responses.pop(), error_message=why))


def refuse(decision: Decision, event: RequestEvent, code: ErrorCode) -> None:
    """Answer a request with an error, without reading its group, in the shape of its API."""
    api = event.api
    version = version_of(event)
    if api == "join_group":
        # Kafka's ownership checks come after these two, and answer without the member id.
        before = code in (ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_SESSION_TIMEOUT)
        member_id = event.join_group.member_id if before and event.join_group is not None else ""
        decision.answer(event, code, shape_join(JoinGroupResponse(member_id=member_id), version))
    elif api == "sync_group":
        decision.answer(event, code, shape_sync(SyncGroupResponse(), version))
    elif api == "heartbeat" and code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # While a group loads, no session can expire: Kafka answers every heartbeat NONE.
        decision.answer(event, NONE, HeartbeatResponse())
    elif api == "leave_group":
        refuse_leave(decision, event, code)
    elif api == "offset_commit" and event.offset_commit is not None:
        refuse_commit(decision, event, event.offset_commit, code)
    elif api == "find_coordinator":
        partition = partition_for(event.group_id, decision.config.offsets_topic_num_partitions)
        decision.answer(event, code, FindCoordinatorResponse(partition, -1, "", -1))
    else:
        decision.answer(event, code, DECIDED[api].response())
