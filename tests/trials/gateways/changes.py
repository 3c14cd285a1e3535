"""Changes that operators request from a gateway, and the field of the response with the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol.admin import (
    CreateAclsRequest,
    CreateAclsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

from group_coordinator.schemas.acls import ANONYMOUS, AclOperation

if TYPE_CHECKING:
    from kafka.protocol.api_message import ApiMessage

_TIMEOUT_MS = 2_000
_TOPIC_TYPE, _LITERAL, _ALLOW = 2, 3, 3


class Change(NamedTuple):
    """A request of one change, its version, the class of its answer, and its field of results."""

    request: ApiMessage
    version: int
    response: Any
    results: str


def creation(topic: str, partitions: int) -> Change:
    """Return the creation of a topic."""
    of = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[of], timeout_ms=_TIMEOUT_MS, validate_only=False)
    return Change(request, 4, CreateTopicsResponse, "topics")


def deletion(topic: str) -> Change:
    """Return the deletion of a topic."""
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=_TIMEOUT_MS)
    return Change(request, 3, DeleteTopicsResponse, "responses")


def growth(topic: str, count: int) -> Change:
    """Return the growth of a topic to `count` partitions."""
    of = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[of], timeout_ms=_TIMEOUT_MS, validate_only=False)
    return Change(request, 1, CreatePartitionsResponse, "results")


def permission(host: str, operation: str, topic: str) -> Change:
    """Return an ACL that allows anonymous clients of a host an operation on a topic."""
    of = CreateAclsRequest.AclCreation(
        resource_type=_TOPIC_TYPE,
        resource_name=topic,
        resource_pattern_type=_LITERAL,
        principal=ANONYMOUS,
        host=host,
        operation=int(AclOperation[operation]),
        permission_type=_ALLOW,
    )
    return Change(CreateAclsRequest(creations=[of]), 2, CreateAclsResponse, "results")


def removal(host: str, operation: str, topic: str) -> Change:
    """That ACL less."""
    of = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=_TOPIC_TYPE,
        resource_name_filter=topic,
        pattern_type_filter=_LITERAL,
        principal_filter=ANONYMOUS,
        host_filter=host,
        operation=int(AclOperation[operation]),
        permission_type=_ALLOW,
    )
    return Change(DeleteAclsRequest(filters=[of]), 2, DeleteAclsResponse, "filter_results")
