"""CreatePartitions (API key 37): adds partitions to topics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import ALTER, TOPIC
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.catalogue import DENIED, TWICE, ApiError, change, twice
from group_coordinator.pipeline.tables import alter_topic, check_more_partitions
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext


CreatePartitionsResponse = struct("CreatePartitionsResponse")


async def _answer(call: RequestContext, request: Any) -> Any:
    refused = twice(each.name for each in request.topics)
    return CreatePartitionsResponse(
        results=[
            _result(name, TWICE)
            if name in refused
            else await _create(call, topic, request.validate_only)
            for name, topic in {each.name: each for each in request.topics}.items()
        ]
    )


async def _create(call: RequestContext, topic: Any, validate_only: bool) -> Any:
    named = call.services.root, topic.name, topic.count
    made = DENIED
    if call.may(ALTER, TOPIC, topic.name):
        if validate_only:
            grow = partial(check_more_partitions, *named)
        else:
            grow = partial(alter_topic, *named, lambda _: call.check_time())
        made = await change(call, topic.name, grow, topic.count)
    return _result(topic.name, made)


def _result(name: str, made: ApiError) -> Any:
    return CreatePartitionsResponse.CreatePartitionsTopicResult(
        name=name, error_code=made.code, error_message=made.message
    )


API = ApiHandler("CreatePartitions", _answer)
