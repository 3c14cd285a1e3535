"""CreateAcls (API key 30)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import ALTER, CLUSTER
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.gateway.acl_codes import name_of, told
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.request_context import TooLate
from group_coordinator.pipeline.tables import add_acls
from group_coordinator.schemas.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    problem_of,
)
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext

CreateAclsResponse = struct("CreateAclsResponse")
# Kafka's authorizer refuses this as well: where there are no ACLs, it allows nothing.
_FIRST = (
    "The first ACL denies everything else to everybody but super users: one of these makes it, or "
    "`group-coordinator acls add`."
)


async def _answer(call: RequestContext, request: Any) -> Any:
    if not call.may(ALTER, CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        denied = [_result(code, "Cluster authorization failed.") for _ in request.creations]
        return CreateAclsResponse(results=denied)
    if not call.services.acls.may_begin(call.principal):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return CreateAclsResponse(results=[_result(code, _FIRST) for _ in request.creations])
    wanted = [_binding(each) for each in request.creations]
    problems = [problem_of(acl) for acl in wanted]
    good = [acl for acl, problem in zip(wanted, problems, strict=True) if problem is None]
    code, why = ErrorCode.NONE, None
    if good:
        try:
            await call.in_thread(
                add_acls, call.services.root, good, call.principal, call.check_time
            )
            await call.services.acls.look()
        except TooLate as late:
            code, why = ErrorCode.REQUEST_TIMED_OUT, str(late)
        except STORE_FAILS as error:
            code, why = ErrorCode.KAFKA_STORAGE_ERROR, told(error)
    return CreateAclsResponse(
        results=[
            _result(code, why) if problem is None else _result(ErrorCode.INVALID_REQUEST, problem)
            for problem in problems
        ]
    )


def _binding(asked: Any) -> AclBinding:
    return AclBinding(
        resource_type=name_of(ResourceType, asked.resource_type),
        resource_name=asked.resource_name,
        pattern_type=name_of(PatternType, asked.resource_pattern_type),
        principal=asked.principal,
        host=asked.host,
        operation=name_of(AclOperation, asked.operation),
        permission=name_of(Permission, asked.permission_type),
    )


def _result(code: ErrorCode, why: str | None) -> Any:
    return CreateAclsResponse.AclCreationResult(error_code=int(code), error_message=why)


API = ApiHandler("CreateAcls", _answer)
