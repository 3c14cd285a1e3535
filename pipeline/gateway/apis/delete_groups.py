"""DeleteGroups (API key 42)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafka.protocol.admin.groups import DeleteGroupsRequest, DeleteGroupsResponse

from group_coordinator.pipeline.gateway.api import Api
from group_coordinator.pipeline.gateway.call import ADMIN_TIMEOUT_MS
from group_coordinator.schemas import messages

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.call import Call


async def _answer(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    body = messages.DeleteGroupsRequest()
    answers = await asyncio.gather(
        *(
            call.ask_in_time("delete_groups", group_id, body, ADMIN_TIMEOUT_MS)
            for group_id in request.groups_names
        )
    )
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(
                group_id=decided.group_id, error_code=decided.error_code
            )
            for decided in answers
        ]
    )


API = Api(DeleteGroupsRequest, 0, 2, _answer)
