"""Decision: a group at one time, and the output of the handlers that act on it.

A handler has no other output than the responses, records and events that it adds to its `Decision`,
and the changes that it makes to the group. The caller must append `records` before it shows
`responses` to clients, because an answer may depend on a record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import force_setattr

from group_coordinator.coordinator.authorization import Authorizer
from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.classic_group import (
    ClassicGroup,
    ClassicGroupMember,
    ParkedRequest,
)
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import (
    JoinGroupResponse,
    RequestEvent,
    Response,
    SyncGroupResponse,
)
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    OFFSET_COMMIT,
    CoordinatorRecord,
    GroupEvent,
    GroupMetadataValue,
    OffsetCommitValue,
)

# Append records to the log; return NONE, or the code to answer if the log refuses them.
Append = Callable[[Sequence[CoordinatorRecord]], ErrorCode]
# Make the unique part of a new member id from the id of the request.
NewId = Callable[[str], str]
# Code -> its number and name, because `int` of an Enum's member is slow.
_CODES = {int(code): (int(code), code.name) for code in ErrorCode}


class Decision(Struct, eq=False):
    """A group at time `now` (ms), and the output of the handlers so far.

    `group` None: the group does not exist, or was deleted. `request_id` identifies the request that
    is being decided; None for a timer. `topics` is the catalogue.
    """

    group_id: str
    group: ClassicGroup | None
    now: int
    config: GroupCoordinatorConfig
    new_id: NewId
    append_to_log: Append
    topics: dict[str, int] | None
    authorizer: Authorizer | None = None
    request_id: str | None = None
    responses: list[Response] = []
    records: list[CoordinatorRecord] = []
    events: list[GroupEvent] = []
    _known_partition: int | None = None

    @property
    def present(self) -> ClassicGroup:
        """The group. Raises LookupError if it does not exist."""
        group = self.group
        if group is None:
            raise LookupError(f"group {self.group_id!r} does not exist")
        return group

    def allows(self, event: RequestEvent, operation: str, topic: str) -> bool:
        """Whether the sender of a request may perform an operation on a topic."""
        return self.authorizer is None or self.authorizer.allows_topic(event, operation, topic)

    # --- answers --------------------------------------------------------------------------------

    def answer(
        self,
        request: RequestEvent,
        code: int,
        body: Struct,
        message: str | None = None,
    ) -> None:
        """Answer a request that is not parked."""
        self.responses.append(
            make_response(
                request.request_id, self.group_id, request.api, code, self.now, body, message
            )
        )

    def answer_parked_join(
        self, parked: ParkedRequest, code: ErrorCode, body: JoinGroupResponse
    ) -> None:
        """Answer a parked join."""
        shaped = shape_join(body, parked.api_version)
        self.responses.append(
            make_response(parked.request_id, self.group_id, "join_group", code, self.now, shaped)
        )

    def answer_parked_sync(
        self, parked: ParkedRequest, code: ErrorCode, body: SyncGroupResponse | None = None
    ) -> None:
        """Answer a parked sync."""
        shaped = shape_sync(body or SyncGroupResponse(), parked.api_version)
        self.responses.append(
            make_response(parked.request_id, self.group_id, "sync_group", code, self.now, shaped)
        )

    def complete_join(
        self, member: ClassicGroupMember, code: ErrorCode, body: JoinGroupResponse | None = None
    ) -> None:
        """Answer the member's parked join, if it has one."""
        parked = self.present.unpark_join(member)
        if parked is not None:
            self.answer_parked_join(parked, code, body or JoinGroupResponse())

    def complete_sync(
        self, member: ClassicGroupMember, code: ErrorCode, body: SyncGroupResponse | None = None
    ) -> bool:
        """Answer the member's parked sync; return False if it has none."""
        parked = member.awaiting_sync
        if parked is None:
            return False
        member.awaiting_sync = None
        self.answer_parked_sync(parked, code, body)
        return True

    # --- records --------------------------------------------------------------------------------

    def append(self, *records: CoordinatorRecord) -> ErrorCode:
        """Append records to the log, all or none; return NONE or the code to answer."""
        error = self.append_to_log(records)
        if error is NONE:
            self.records.extend(records)
        return error

    @property
    def _offsets_partition(self) -> int:
        partition = self._known_partition
        if partition is None:
            number = self.config.offsets_topic_num_partitions
            partition = self._known_partition = partition_for(self.group_id, number)
        return partition

    def group_record(self, value: GroupMetadataValue | None, reason: str) -> CoordinatorRecord:
        """Return a group metadata record, or the group's tombstone if `value` is None."""
        return CoordinatorRecord(
            partition=self._offsets_partition,
            record_type=GROUP_METADATA,
            group_id=self.group_id,
            timestamp=self.now,
            group_metadata=value,
            reason=reason,
            request_id=self.request_id,
        )

    def offset_record(
        self, topic: str, partition: int, value: OffsetCommitValue | None, reason: str
    ) -> CoordinatorRecord:
        """Return an offset commit record, or the partition's tombstone if `value` is None."""
        return CoordinatorRecord(
            partition=self._offsets_partition,
            record_type=OFFSET_COMMIT,
            group_id=self.group_id,
            timestamp=self.now,
            topic=topic,
            topic_partition=partition,
            offset_commit=value,
            reason=reason,
            request_id=self.request_id,
        )

    # --- events ---------------------------------------------------------------------------------

    def note(
        self,
        event: str,
        reason: str,
        member: ClassicGroupMember | None = None,
        member_id: str | None = None,
        from_state: str | None = None,
        to_state: str | None = None,
    ) -> None:
        """Add an event to the audit log; `member_id` names an id that has no member."""
        self.events.append(
            GroupEvent(
                at=self.now,
                group_id=self.group_id,
                event=event,
                from_state=from_state,
                to_state=to_state,
                generation=None if self.group is None else self.group.generation_id,
                member_id=member_id if member is None else member.member_id,
                group_instance_id=None if member is None else member.group_instance_id,
                client_id=None if member is None else member.client_id,
                client_host=None if member is None else member.client_host,
                reason=reason,
                request_id=self.request_id,
            )
        )

    def transition(self, state: GroupState, reason: str) -> None:
        """Change the group's state, and log the transition with its reason."""
        group = self.present
        group.transition_to(state, self.now)
        self.note_transition(group.previous_state, reason)

    def note_transition(self, before: GroupState, reason: str) -> None:
        """Log the transition from `before` to the current state."""
        after = self.present.state.value
        self.note("transition", reason, from_state=before.value, to_state=after)


def make_response(
    request_id: str,
    group_id: str,
    api: str,
    code: int,
    now: int,
    body: Struct,
    message: str | None = None,
) -> Response:
    """Return a response with the body in the field that is named after its API."""
    number, name = _CODES[code]
    response = Response(
        request_id=request_id,
        group_id=group_id,
        api=api,
        error_code=number,
        error=name,
        error_message=message,
        responded_at=now,
    )
    # The Struct is frozen, but the response is not shared yet. `**{api: body}` would be slower.
    force_setattr(response, api, body)
    return response


def shape_join(body: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """Adapt a join's answer to its version: below 7 no protocol type, and "" for no name."""
    if version >= 7:
        return body
    return JoinGroupResponse(
        generation_id=body.generation_id,
        protocol_type=None,
        protocol_name=body.protocol_name or "",
        leader=body.leader,
        skip_assignment=body.skip_assignment,
        member_id=body.member_id,
        members=body.members,
    )


def shape_sync(body: SyncGroupResponse, version: int) -> SyncGroupResponse:
    """Adapt a sync's answer to its version: below 5 no protocol type and no protocol name."""
    return body if version >= 5 else SyncGroupResponse(assignment=body.assignment)
