"""DescribeGroups. Source: Apache Kafka, GroupMetadataManager.describeGroups."""

from __future__ import annotations

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.state import STABLE, GroupState
from group_coordinator.schemas.apis import version_of
from group_coordinator.schemas.errors import NONE, ErrorCode
from group_coordinator.schemas.messages import (
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    RequestEvent,
)

GROUP_ID_NOT_FOUND_VERSION = 6


def describe_groups(decision: Decision, event: RequestEvent, _body: DescribeGroupsRequest) -> None:
    """Describe the group; a missing group is "Dead", with an error from version 6 on."""
    if decision.group is not None:
        decision.answer(event, NONE, _describe(decision.group))
        return
    dead = DescribeGroupsResponse(state=GroupState.DEAD.value)
    version = version_of(event)
    if version >= GROUP_ID_NOT_FOUND_VERSION:
        message = f"Group {decision.group_id} not found."
        decision.answer(event, ErrorCode.GROUP_ID_NOT_FOUND, dead, message)
    else:
        decision.answer(event, NONE, dead)


def _describe(group: ClassicGroup) -> DescribeGroupsResponse:
    stable = group.state is STABLE
    return DescribeGroupsResponse(
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if stable else "",
        members=tuple(
            DescribedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol_name) if stable else b"",
                member.assignment,
            )
            for member in group.members.values()
        ),
    )
