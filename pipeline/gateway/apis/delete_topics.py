"""DeleteTopics (API key 20): removes topics from the catalogue.

A user's table is kept; a log table that was created for the topic is deleted by upkeep.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import DELETE, TOPIC
from group_coordinator.pipeline.admin.changes import delete_topic
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.catalogue import DENIED, TWICE, ApiError, change, twice
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.schema import NO_UUID
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext

DeleteTopicsResponse = struct("DeleteTopicsResponse")
_Result = DeleteTopicsResponse.DeletableTopicResult
# From this version on, a request may name a topic by its id. Topics have no ids here.
_WITH_IDS = 6
_UNKNOWN_ID = ApiError(int(ErrorCode.UNKNOWN_TOPIC_ID), "topics have no ids here: name them")


async def _answer(call: RequestContext, request: Any) -> Any:
    if call.version < _WITH_IDS:
        named = [(name, NO_UUID) for name in request.topic_names]
    else:
        named = [(topic.name, topic.topic_id) for topic in request.topics]
    refused = twice(name for name, _ in named if name is not None)
    responses = [
        _result(name, topic_id, TWICE) if name in refused else await _delete(call, name, topic_id)
        for name, topic_id in dict.fromkeys(named)
    ]
    return DeleteTopicsResponse(responses=responses)


async def _delete(call: RequestContext, name: str | None, topic_id: bytes) -> Any:
    made = _UNKNOWN_ID
    if name is not None and not call.may(DELETE, TOPIC, name):
        made = DENIED._replace(message="Topic authorization failed.")
    elif name is not None:
        services = call.services
        delete = partial(delete_topic, services.root, name, call.check_time)
        made = await change(call, name, delete)
    return _result(name, topic_id, made)


def _result(name: str | None, topic_id: bytes, made: ApiError) -> Any:
    return _Result(name=name, topic_id=topic_id, error_code=made.code, error_message=made.message)


API = ApiHandler("DeleteTopics", _answer)
