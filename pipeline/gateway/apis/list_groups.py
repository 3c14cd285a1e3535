"""ListGroups (API key 16): all groups of the root, by SQL over its tables."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import CLUSTER, DESCRIBE, GROUP
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.schemas.acls import CLUSTER_NAME
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.group_listing import Listing
    from group_coordinator.pipeline.gateway.request_context import RequestContext

ListGroupsResponse = struct("ListGroupsResponse")
log = logging.getLogger(__name__)


async def _answer(call: RequestContext, request: Any) -> Any:
    # DuckDB reads the tables in another thread, so that the event loop serves other clients.
    try:
        listing = await call.services.groups.read()
    except STORE_FAILS as error:
        # Clients retry after this error code.
        log.warning("the groups cannot be listed: %s", first_line(error))
        return ListGroupsResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE), groups=[])
    if request.states_filter or request.types_filter:
        return await call.in_thread(_response, call, request, listing)
    # Requests of the same client and version share one response, which is encoded once.
    key = call.owner, call.version
    answer = listing.answers.get(key)
    if answer is None or answer.cancelled():
        answer = listing.answers[key] = call.in_thread(_body, call, request, listing)
    return await asyncio.shield(answer)


def _body(call: RequestContext, request: Any, listing: Listing) -> bytes:
    return API.write(_response(call, request, listing), call.version)


def _response(call: RequestContext, request: Any, listing: Listing) -> Any:
    states = {state.lower() for state in request.states_filter or ()}
    types = {each.lower() for each in request.types_filter or ()}
    found = listing.groups
    if not call.may(DESCRIBE, CLUSTER, CLUSTER_NAME):
        found = [group for group in found if call.may(DESCRIBE, GROUP, group.group_id)]
    return ListGroupsResponse(
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            for group in found
            if (not states or group.state.lower() in states) and (not types or group.type in types)
        ]
    )


API = ApiHandler("ListGroups", _answer, aside=True)
