"""ListGroups as a gateway of a root answers it, without the gateway."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from group_coordinator.pipeline.gateway.apis.groups import LIST_GROUPS
from group_coordinator.pipeline.gateway.fair_threads import FairThreadPool
from group_coordinator.pipeline.gateway.polling import GroupListings
from group_coordinator.pipeline.gateway.request_context import RequestContext
from group_coordinator.schemas.kafka.reading import reader
from group_coordinator.schemas.kafka.structs import struct

VERSION = 5


def listed(root: str, states: Any = None, types: Any = None) -> Any:
    """The response to a client that may see all groups."""
    return asyncio.run(_answered(root, states, types))


async def _answered(root: str, states: Any, types: Any) -> Any:
    services: Any = SimpleNamespace(
        groups=GroupListings(root), threads=FairThreadPool(2, "clients")
    )
    services.acls = SimpleNamespace(check=lambda _: None, authorizer=None)
    call = RequestContext(services, VERSION, "c", "/10.0.0.1", "User:alice", 0, "L")
    request = struct("ListGroupsRequest")(states_filter=states, types_filter=types)
    answer: Any = LIST_GROUPS.handler
    try:
        found = await answer(call, request)
    finally:
        services.threads.close()
        await services.groups.close()
    body = found if isinstance(found, bytes) else LIST_GROUPS.write(found, VERSION)
    return reader("ListGroupsResponse", VERSION)(body, 0)
