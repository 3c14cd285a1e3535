"""The APIs of tools for groups: ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import CLUSTER, DESCRIBE, GROUP
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.polling import INTERVAL_S, SharedResult
from group_coordinator.pipeline.gateway.request_context import ADMIN_TIMEOUT_MS, send_each_group
from group_coordinator.schemas import messages
from group_coordinator.schemas.acls import CLUSTER_NAME
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.gateway.polling import GroupListing
    from group_coordinator.pipeline.gateway.request_context import RequestContext

log = logging.getLogger(__name__)


# --- ListGroups (API key 16): all groups of the root, by SQL over its tables ----------------------


ListGroupsResponse = struct("ListGroupsResponse")


async def _list_groups(call: RequestContext, request: Any) -> Any:
    # DuckDB reads the tables in another thread, so that the event loop serves other clients.
    try:
        listing = await call.services.groups.read()
    except STORE_FAILS as error:
        # Clients retry after this error code.
        log.warning("the groups cannot be listed: %s", first_line(error))
        return ListGroupsResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE), groups=[])
    if request.states_filter or request.types_filter:
        return await call.in_thread(_list_response, call, request, listing)
    # Requests of the same client and version share one response, which is encoded once.
    key = call.owner, call.version
    answer = listing.responses.get(key)
    if answer is None or answer.is_cancelled:
        work = call.in_thread(_list_body, call, request, listing)
        answer = listing.responses[key] = SharedResult(work, INTERVAL_S)
    return await answer.get()


def _list_body(call: RequestContext, request: Any, listing: GroupListing) -> bytes:
    return LIST_GROUPS.write(_list_response(call, request, listing), call.version)


def _list_response(call: RequestContext, request: Any, listing: GroupListing) -> Any:
    states = {state.lower() for state in request.states_filter or ()}
    types = {each.lower() for each in request.types_filter or ()}
    found = listing.groups
    if not call.authorize(DESCRIBE, CLUSTER, CLUSTER_NAME):
        found = [group for group in found if call.authorize(DESCRIBE, GROUP, group.group_id)]
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


LIST_GROUPS = ApiHandler("ListGroups", _list_groups, in_thread=True)


# --- DescribeGroups (API key 15) ------------------------------------------------------------------


DescribeGroupsResponse = struct("DescribeGroupsResponse")
_DescribedGroup = DescribeGroupsResponse.DescribedGroup


async def _describe_groups(call: RequestContext, request: Any) -> Any:
    body = messages.DescribeGroupsRequest()
    asked = [(group_id, body) for group_id in request.groups]
    return await send_each_group(call, "describe_groups", asked, call.send, _describe_response)


def _describe_response(answers: Sequence[messages.Response]) -> Any:
    return DescribeGroupsResponse(groups=[_described_group(decided) for decided in answers])


def _described_group(decided: messages.Response) -> Any:
    found = decided.describe_groups or messages.DescribeGroupsResponse()
    return _DescribedGroup(
        error_code=decided.error_code,
        error_message=decided.error_message,
        group_id=decided.group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=found.members,
    )


DESCRIBE_GROUPS = ApiHandler(
    "DescribeGroups", _describe_groups, counts_each_group=True, in_thread=True
)


# --- DeleteGroups (API key 42) --------------------------------------------------------------------


DeleteGroupsResponse = struct("DeleteGroupsResponse")


async def _delete_groups(call: RequestContext, request: Any) -> Any:
    body = messages.DeleteGroupsRequest()
    asked = [(group_id, body) for group_id in request.groups_names]
    ask = partial(call.send_within, timeout_ms=ADMIN_TIMEOUT_MS)
    return await send_each_group(call, "delete_groups", asked, ask, _delete_response)


def _delete_response(answers: Sequence[messages.Response]) -> Any:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(
                group_id=decided.group_id, error_code=decided.error_code
            )
            for decided in answers
        ]
    )


DELETE_GROUPS = ApiHandler("DeleteGroups", _delete_groups, counts_each_group=True)
