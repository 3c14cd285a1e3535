"""FindCoordinator (API key 10): the gateway that the members of a group connect to.

Every gateway serves every group. The hash of the group id selects one of the live gateways, so that
groups are spread over them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import DESCRIBE, GROUP
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext

FindCoordinatorResponse = struct("FindCoordinatorResponse")
# Key types: the id of a group, and a transactional id.
_GROUP, _TRANSACTION = 0, 1
# From this version on, a request names any number of groups (KIP-699).
_MANY_KEYS = 4
# More keys are looked up in a thread, so that the event loop serves other clients.
_MOST_KEYS_AT_ONCE = 100


async def _answer(call: RequestContext, request: Any) -> Any:
    if len(request.coordinator_keys or ()) > _MOST_KEYS_AT_ONCE:
        return await call.in_thread(_response, call, request)
    return _response(call, request)


def _response(call: RequestContext, request: Any) -> Any:
    keys = request.coordinator_keys if call.version >= _MANY_KEYS else [request.key]
    found = [_coordinator(call, key, request.key_type) for key in keys]
    if call.version >= _MANY_KEYS:
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(key=key, **fields)
                for key, fields in zip(keys, found, strict=True)
            ]
        )
    return FindCoordinatorResponse(**found[0])


def _coordinator(call: RequestContext, key: str, key_type: int) -> dict[str, Any]:
    # Transactions and share groups have no coordinator here. A transactional producer gets an error
    # that it does not retry, because otherwise it would retry forever.
    if call.version and key_type != _GROUP:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if key_type == _TRANSACTION:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        message = f"key_type {key_type}: there are coordinators of consumer groups (0) only"
        return _none(code, message)
    if not call.may(DESCRIBE, GROUP, key):
        return _none(ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    broker = call.services.brokers.serving(key, call.listener)
    return {
        "node_id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "error_code": 0,
        "error_message": None,
    }


def _none(code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": int(code),
        "error_message": message,
    }


API = ApiHandler("FindCoordinator", _answer)
