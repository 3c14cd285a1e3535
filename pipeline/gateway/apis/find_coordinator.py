"""FindCoordinator (API key 10): which gateway a group's members are to talk to.

Every gateway serves every group. A group's id chooses one of those alive, so that groups spread
over them.
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
# What the key of a request names: a group, or a producer's transactions.
_GROUP, _TRANSACTION = 0, 1
# From this version on a request names any number of groups (KIP-699).
_MANY_KEYS = 4
# More are looked up in a thread: the loop serves others.
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
    # Transactions and share groups are not served: there is no coordinator of theirs. A producer
    # with a transactional id would ask for ever if it were told that there may be one later.
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
