"""DescribeAcls (API key 29): the ACLs that match a filter, by resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import CLUSTER, DESCRIBE
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.gateway.acl_codes import code_of, filter_of, told
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.schemas.acls import (
    CLUSTER_NAME,
    AclBinding,
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

DescribeAclsResponse = struct("DescribeAclsResponse")
_Resource = DescribeAclsResponse.DescribeAclsResource


async def _answer(call: RequestContext, request: Any) -> Any:
    if not call.may(DESCRIBE, CLUSTER, CLUSTER_NAME):
        return _failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    try:
        # The response must have ACLs that were just created through another gateway.
        await call.services.acls.look()
    except STORE_FAILS as error:
        return _failed(ErrorCode.KAFKA_STORAGE_ERROR, told(error))
    wanted = filter_of(request)
    found = [acl for acl in call.services.acls.acls or () if wanted.matches(acl)]
    return DescribeAclsResponse(error_code=0, error_message=None, resources=_by_resource(found))


def _failed(code: ErrorCode, why: str) -> Any:
    return DescribeAclsResponse(error_code=int(code), error_message=why, resources=[])


def _by_resource(acls: Iterable[AclBinding]) -> list[Any]:
    resources: dict[tuple[str, str, str], list[AclBinding]] = {}
    for acl in acls:
        pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resources.setdefault(pattern, []).append(acl)
    return [
        _Resource(
            resource_type=code_of(ResourceType, kind),
            resource_name=name,
            pattern_type=code_of(PatternType, pattern_type),
            acls=[
                _Resource.AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=code_of(AclOperation, acl.operation),
                    permission_type=code_of(Permission, acl.permission),
                )
                for acl in found
            ],
        )
        for (kind, name, pattern_type), found in resources.items()
    ]


API = ApiHandler("DescribeAcls", _answer, aside=True)
