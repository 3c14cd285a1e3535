"""DeleteGroups (API key 42)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.each_group import ask_each
from group_coordinator.pipeline.gateway.request_context import ADMIN_TIMEOUT_MS
from group_coordinator.schemas import messages
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.gateway.request_context import RequestContext


DeleteGroupsResponse = struct("DeleteGroupsResponse")


async def _answer(call: RequestContext, request: Any) -> Any:
    body = messages.DeleteGroupsRequest()
    asked = [(group_id, body) for group_id in request.groups_names]
    ask = partial(call.ask_in_time, timeout_ms=ADMIN_TIMEOUT_MS)
    return await ask_each(call, "delete_groups", asked, ask, _response)


def _response(answers: Sequence[messages.Response]) -> Any:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(
                group_id=decided.group_id, error_code=decided.error_code
            )
            for decided in answers
        ]
    )


API = ApiHandler("DeleteGroups", _answer, takes_room=True)
