"""The APIs of ACLs: DescribeAcls, CreateAcls and DeleteAcls.

`schemas.acls` has the names of resource types, operations and permissions with their codes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import ALTER, CLUSTER, DESCRIBE
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.request_context import DeadlinePassed
from group_coordinator.pipeline.tables import add_acls, remove_acls
from group_coordinator.schemas.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    problem_of,
)
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import IntEnum

    from group_coordinator.pipeline.gateway.request_context import RequestContext

log = logging.getLogger(__name__)


# --- DescribeAcls (API key 29): the ACLs that match a filter, by resource -------------------------


DescribeAclsResponse = struct("DescribeAclsResponse")
_Resource = DescribeAclsResponse.DescribeAclsResource


async def _describe_acls(call: RequestContext, request: Any) -> Any:
    if not call.authorize(DESCRIBE, CLUSTER, CLUSTER_NAME):
        return _describe_failed(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
        )
    try:
        # The response must have ACLs that were just created through another gateway.
        await call.services.acls.poll()
    except STORE_FAILS as error:
        return _describe_failed(ErrorCode.KAFKA_STORAGE_ERROR, _storage_error(error))
    acl_filter = _filter_of(request)
    matching = [acl for acl in call.services.acls.acls or () if acl_filter.matches(acl)]
    return DescribeAclsResponse(error_code=0, error_message=None, resources=_by_resource(matching))


def _describe_failed(code: ErrorCode, why: str) -> Any:
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
            acls=[_Resource.AclDescription(**_entry(acl)) for acl in found],
        )
        for (kind, name, pattern_type), found in resources.items()
    ]


DESCRIBE_ACLS = ApiHandler("DescribeAcls", _describe_acls, in_thread=True)


# --- CreateAcls (API key 30) ----------------------------------------------------------------------


CreateAclsResponse = struct("CreateAclsResponse")
# Kafka's authorizer refuses this as well: where there are no ACLs, it allows nothing.
_FIRST_ACL = (
    "The first ACL denies everything else to everybody but super users: one of these makes it, or "
    "`group-coordinator acls add`."
)


async def _create_acls(call: RequestContext, request: Any) -> Any:
    denial = None
    if not call.authorize(ALTER, CLUSTER, CLUSTER_NAME):
        denial = "Cluster authorization failed."
    elif not call.services.acls.may_create_first(call.principal):
        denial = _FIRST_ACL
    if denial is not None:
        denied = _creation_result(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, denial)
        return CreateAclsResponse(results=[denied] * len(request.creations))
    acls = [_binding(creation) for creation in request.creations]
    problems = [problem_of(acl) for acl in acls]
    valid = [acl for acl, problem in zip(acls, problems, strict=True) if problem is None]
    code, why = ErrorCode.NONE, None
    if valid:
        try:
            await call.in_thread(
                add_acls, call.services.root, valid, call.principal, call.check_deadline
            )
            await call.services.acls.poll()
        except DeadlinePassed as late:
            code, why = ErrorCode.REQUEST_TIMED_OUT, str(late)
        except STORE_FAILS as error:
            code, why = ErrorCode.KAFKA_STORAGE_ERROR, _storage_error(error)
    return CreateAclsResponse(
        results=[
            _creation_result(code, why)
            if problem is None
            else _creation_result(ErrorCode.INVALID_REQUEST, problem)
            for problem in problems
        ]
    )


def _binding(creation: Any) -> AclBinding:
    return AclBinding(
        resource_type=_name_of(ResourceType, creation.resource_type),
        resource_name=creation.resource_name,
        pattern_type=_name_of(PatternType, creation.resource_pattern_type),
        principal=creation.principal,
        host=creation.host,
        operation=_name_of(AclOperation, creation.operation),
        permission=_name_of(Permission, creation.permission_type),
    )


def _creation_result(code: ErrorCode, why: str | None) -> Any:
    return CreateAclsResponse.AclCreationResult(error_code=int(code), error_message=why)


CREATE_ACLS = ApiHandler("CreateAcls", _create_acls)


# --- DeleteAcls (API key 31): removes the ACLs that match the filters, and returns them -----------


DeleteAclsResponse = struct("DeleteAclsResponse")
_FilterResult = DeleteAclsResponse.DeleteAclsFilterResult


async def _delete_acls(call: RequestContext, request: Any) -> Any:
    if not call.authorize(ALTER, CLUSTER, CLUSTER_NAME):
        code, why = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
        return DeleteAclsResponse(
            filter_results=[_filter_result(code, why) for _ in request.filters]
        )
    results = [await _delete_matching(call, _filter_of(entry)) for entry in request.filters]
    return DeleteAclsResponse(filter_results=results)


async def _delete_matching(call: RequestContext, acl_filter: AclFilter) -> Any:
    try:
        removed = await call.in_thread(
            remove_acls, call.services.root, [acl_filter], call.principal, call.check_deadline
        )
        await call.services.acls.poll()
    except DeadlinePassed as late:
        return _filter_result(ErrorCode.REQUEST_TIMED_OUT, str(late))
    except STORE_FAILS as error:
        return _filter_result(ErrorCode.KAFKA_STORAGE_ERROR, _storage_error(error))
    return _filter_result(ErrorCode.NONE, None, removed)


def _filter_result(code: ErrorCode, why: str | None, removed: Iterable[AclBinding] = ()) -> Any:
    return _FilterResult(
        error_code=int(code),
        error_message=why,
        matching_acls=[
            _FilterResult.DeleteAclsMatchingAcl(
                error_code=0,
                error_message=None,
                resource_type=code_of(ResourceType, acl.resource_type),
                resource_name=acl.resource_name,
                pattern_type=code_of(PatternType, acl.pattern_type),
                **_entry(acl),
            )
            for acl in removed
        ],
    )


DELETE_ACLS = ApiHandler("DeleteAcls", _delete_acls)


# --- codes and filters ----------------------------------------------------------------------------


def _storage_error(error: Exception) -> str:
    """Log a failure, and return the message for the client, which does not name the tables."""
    log.warning("the ACLs cannot be read or changed: %s", error)
    return "the ACLs cannot be read or changed at present"


def _name_of(kind: type[IntEnum], code: int) -> str:
    """Return the name of a code; UNKNOWN for a code that a later Kafka may have added."""
    try:
        return kind(code).name
    except ValueError:
        return "UNKNOWN"


def code_of(kind: type[IntEnum], name: str) -> int:
    """Return the code of a name; that of UNKNOWN for a name that another release wrote."""
    return int(kind.__members__.get(name, kind(0)))


def _entry(acl: AclBinding) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": code_of(AclOperation, acl.operation),
        "permission_type": code_of(Permission, acl.permission),
    }


def _filter_of(entry: Any) -> AclFilter:
    """Return the filter of a DescribeAcls request, or of one entry of a DeleteAcls request."""
    return AclFilter(
        resource_type=_name_of(ResourceType, entry.resource_type_filter),
        resource_name=entry.resource_name_filter,
        pattern_type=_name_of(PatternType, entry.pattern_type_filter),
        principal=entry.principal_filter,
        host=entry.host_filter,
        operation=_name_of(AclOperation, entry.operation),
        permission=_name_of(Permission, entry.permission_type),
    )
