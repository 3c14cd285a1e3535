"""DescribeGroups (API key 15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.each_group import ask_each
from group_coordinator.schemas import messages
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.gateway.request_context import RequestContext

DescribeGroupsResponse = struct("DescribeGroupsResponse")
_Group = DescribeGroupsResponse.DescribedGroup


async def _answer(call: RequestContext, request: Any) -> Any:
    body = messages.DescribeGroupsRequest()
    asked = [(group_id, body) for group_id in request.groups]
    return await ask_each(call, "describe_groups", asked, call.ask, _response)


def _response(answers: Sequence[messages.Response]) -> Any:
    return DescribeGroupsResponse(groups=[_group(decided) for decided in answers])


def _group(decided: messages.Response) -> Any:
    found = decided.describe_groups or messages.DescribeGroupsResponse()
    return _Group(
        error_code=decided.error_code,
        error_message=decided.error_message,
        group_id=decided.group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=found.members,
    )


API = ApiHandler("DescribeGroups", _answer, takes_room=True, aside=True)
