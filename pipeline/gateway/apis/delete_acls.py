"""DeleteAcls (API key 31): removes the ACLs that match the filters, and returns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import ALTER, CLUSTER
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.gateway.acl_codes import code_of, filter_of, told
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.request_context import TooLate
from group_coordinator.pipeline.tables import remove_acls
from group_coordinator.schemas.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from group_coordinator.pipeline.gateway.request_context import RequestContext

DeleteAclsResponse = struct("DeleteAclsResponse")
_Result = DeleteAclsResponse.DeleteAclsFilterResult


async def _answer(call: RequestContext, request: Any) -> Any:
    if not call.may(ALTER, CLUSTER, CLUSTER_NAME):
        code, why = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
        return DeleteAclsResponse(filter_results=[_result(code, why) for _ in request.filters])
    results = [await _remove(call, filter_of(each)) for each in request.filters]
    return DeleteAclsResponse(filter_results=results)


async def _remove(call: RequestContext, wanted: AclFilter) -> Any:
    try:
        removed = await call.in_thread(
            remove_acls, call.services.root, [wanted], call.principal, call.check_time
        )
        await call.services.acls.look()
    except TooLate as late:
        return _result(ErrorCode.REQUEST_TIMED_OUT, str(late))
    except STORE_FAILS as error:
        return _result(ErrorCode.KAFKA_STORAGE_ERROR, told(error))
    return _result(ErrorCode.NONE, None, removed)


def _result(code: ErrorCode, why: str | None, removed: Iterable[AclBinding] = ()) -> Any:
    return _Result(
        error_code=int(code),
        error_message=why,
        matching_acls=[
            _Result.DeleteAclsMatchingAcl(
                error_code=0,
                error_message=None,
                resource_type=code_of(ResourceType, acl.resource_type),
                resource_name=acl.resource_name,
                pattern_type=code_of(PatternType, acl.pattern_type),
                principal=acl.principal,
                host=acl.host,
                operation=code_of(AclOperation, acl.operation),
                permission_type=code_of(Permission, acl.permission),
            )
            for acl in removed
        ],
    )


API = ApiHandler("DeleteAcls", _answer)
