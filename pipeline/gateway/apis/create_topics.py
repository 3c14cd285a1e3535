"""CreateTopics (API key 19): creates topics with a log table and configs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import CLUSTER, CREATE, TOPIC
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.catalogue import DENIED, TWICE, ApiError, change, twice
from group_coordinator.pipeline.topics import check_log_topic, create_log_topic
from group_coordinator.schemas.acls import CLUSTER_NAME
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.pipeline.gateway.request_context import RequestContext

CreateTopicsResponse = struct("CreateTopicsResponse")
# The number of partitions in a request that asks for the broker's num.partitions (KIP-464).
_BROKER_DECIDES = -1
_REPLICAS = 1


async def _answer(call: RequestContext, request: Any) -> Any:
    refused = twice(each.name for each in request.topics)
    return CreateTopicsResponse(
        topics=[
            _result(name, TWICE, -1)
            if name in refused
            else await _create(call, topic, request.validate_only)
            for name, topic in {each.name: each for each in request.topics}.items()
        ]
    )


async def _create(call: RequestContext, topic: Any, validate_only: bool) -> Any:
    if not (call.may(CREATE, CLUSTER, CLUSTER_NAME) or call.may(CREATE, TOPIC, topic.name)):
        return _result(topic.name, DENIED._replace(message="Authorization failed."), -1)
    count = len(topic.assignments) or topic.num_partitions
    if count == _BROKER_DECIDES:
        count = call.services.settings.num_partitions
    config = {each.name: each.value for each in topic.configs}
    asked = call.services.root, topic.name, count, config
    if validate_only:
        create: Callable[[], object] = partial(check_log_topic, *asked)
    else:
        create = partial(create_log_topic, *asked, call.check_time)
    made = await change(call, topic.name, create, count)
    return _result(topic.name, made, count)


def _result(name: str, made: ApiError, count: int) -> Any:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name,
        error_code=made.code,
        error_message=made.message,
        num_partitions=-1 if made.code else count,
        replication_factor=-1 if made.code else _REPLICAS,
        configs=[],
    )


API = ApiHandler("CreateTopics", _answer)
