"""ListGroups (API key 16): every group of the root, by SQL over its tables."""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import CLUSTER, DESCRIBE, GROUP
from group_coordinator.pipeline.delta.failures import STORE_FAILS
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.schemas.acls import CLUSTER_NAME
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext

ListGroupsResponse = struct("ListGroupsResponse")
log = logging.getLogger(__name__)
_GROUPS = """
SELECT group_id, protocol_type, state, if(kind = 'Classic', 'classic', 'unknown') AS type
FROM groups ORDER BY group_id
"""


async def _answer(call: RequestContext, request: Any) -> Any:
    states = {state.lower() for state in request.states_filter or ()}
    types = {each.lower() for each in request.types_filter or ()}
    # DuckDB reads the tables in another thread: the loop serves everybody else meanwhile.
    try:
        found = await asyncio.to_thread(_groups, call.services.root)
    except STORE_FAILS as error:
        # Clients send the request again upon this code.
        log.warning("the groups cannot be listed: %s", first_line(error))
        return ListGroupsResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE), groups=[])
    if not call.may(DESCRIBE, CLUSTER, CLUSTER_NAME):
        found = [group for group in found if call.may(DESCRIBE, GROUP, group[0])]
    return ListGroupsResponse(
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group_id,
                protocol_type=protocol_type,
                group_state=state,
                group_type=type_,
            )
            for group_id, protocol_type, state, type_ in found
            if (not states or state.lower() in states) and (not types or type_ in types)
        ]
    )


def _groups(root: str) -> list[Any]:
    with closing(Catalog(root)) as catalog:
        return catalog.query(_GROUPS).rows


API = ApiHandler("ListGroups", _answer, aside=True)
