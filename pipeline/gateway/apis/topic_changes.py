"""The APIs that change topics: CreateTopics, CreatePartitions and DeleteTopics.

DeleteTopics keeps a user's table; upkeep deletes a log table that was created for the topic.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from deltalake.exceptions import DeltaError

from group_coordinator.coordinator.authorization import ALTER, CLUSTER, CREATE, DELETE, TOPIC
from group_coordinator.pipeline.admin.changes import delete_topic
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.request_context import DeadlinePassed
from group_coordinator.pipeline.quoting import quoted_name, quoted_text
from group_coordinator.pipeline.tables import (
    InvalidPartitions,
    InvalidTopic,
    TopicExists,
    UnknownTopic,
    alter_topic,
    check_more_partitions,
)
from group_coordinator.pipeline.topics import InvalidConfig, check_log_topic, create_log_topic
from group_coordinator.schemas.acls import CLUSTER_NAME
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.schema import NO_UUID
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from group_coordinator.pipeline.gateway.request_context import RequestContext

log = logging.getLogger(__name__)

_CODES: dict[type[Failure], ErrorCode] = {
    InvalidTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    InvalidConfig: ErrorCode.INVALID_CONFIG,
}


class ApiError(NamedTuple):
    """The result of a change: Kafka's error code, 0 if it was made, and any message for users."""

    code: int
    message: str | None


# The error for a client that is not authorized. It does not reveal whether the topic exists.
# Kafka's ControllerApis has a message for CreateTopics, another for DeleteTopics, and none for
# other APIs.
_DENIED = ApiError(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), None)

# The error for a name that a request has more than once. As Kafka's ControllerApis, the gateway
# does not change such a topic, and answers its name once.
_REPEATED = ApiError(int(ErrorCode.INVALID_REQUEST), "Duplicate topic name.")

# Kafka's controller has the same limit (ReplicationControlManager, MAX_PARTITIONS_PER_BATCH),
# because each Metadata response lists all partitions.
_MOST_PARTITIONS = 10_000


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


async def change_topic(
    call: RequestContext, name: str, make_change: Callable[[], object], partitions: int = 0
) -> ApiError:
    """Change a topic in another thread, and refresh the gateway's topics afterwards.

    If the topics cannot be read then, a later poll refreshes them. A change to more than
    `_MOST_PARTITIONS` partitions is refused. Messages to clients do not name the tables; the log
    does.
    """
    if partitions > _MOST_PARTITIONS:
        message = f"{partitions} partitions: a topic may be given {_MOST_PARTITIONS} at most"
        return ApiError(int(ErrorCode.POLICY_VIOLATION), message)
    try:
        await call.in_thread(make_change)
    except TopicExists:
        return ApiError(int(ErrorCode.TOPIC_ALREADY_EXISTS), f"Topic '{name}' already exists.")
    except UnknownTopic:
        # Without a message, clients show their default text for this code.
        return ApiError(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None)
    except (InvalidTopic, InvalidPartitions, InvalidConfig) as refused:
        return ApiError(int(_CODES[type(refused)]), str(refused))
    except DeadlinePassed as late:
        return ApiError(int(ErrorCode.REQUEST_TIMED_OUT), str(late))
    except Failure as error:
        return _failed(name, ErrorCode.UNKNOWN_SERVER_ERROR, error)
    except (DeltaError, OSError) as error:
        return _failed(name, ErrorCode.KAFKA_STORAGE_ERROR, error)
    try:
        await call.services.topics.poll()
    # The change is made: after an error, the client would make it again.
    except STORE_FAILS as error:
        named = quoted_name(name)
        log.warning("topic %s was changed, and the topics cannot be read yet: %s", named, error)
    return ApiError(int(ErrorCode.NONE), None)


def _failed(name: str, code: ErrorCode, error: Exception) -> ApiError:
    log.warning("topic %s cannot be changed: %s", quoted_name(name), quoted_text(error))
    return ApiError(int(code), "the catalogue of topics cannot be changed at present")


# --- CreateTopics (API key 19): creates topics with a log table and configs -----------------------


CreateTopicsResponse = struct("CreateTopicsResponse")
# The number of partitions in a request that asks for the broker's num.partitions (KIP-464).
_BROKER_DECIDES = -1
_REPLICAS = 1


async def _create_topics(call: RequestContext, request: Any) -> Any:
    refused = _repeated(each.name for each in request.topics)
    return CreateTopicsResponse(
        topics=[
            _created(name, _REPEATED, -1)
            if name in refused
            else await _create_topic(call, topic, request.validate_only)
            for name, topic in {each.name: each for each in request.topics}.items()
        ]
    )


async def _create_topic(call: RequestContext, topic: Any, validate_only: bool) -> Any:
    if not (
        call.authorize(CREATE, CLUSTER, CLUSTER_NAME) or call.authorize(CREATE, TOPIC, topic.name)
    ):
        return _created(topic.name, _DENIED._replace(message="Authorization failed."), -1)
    count = len(topic.assignments) or topic.num_partitions
    if count == _BROKER_DECIDES:
        count = call.services.settings.num_partitions
    config = {each.name: each.value for each in topic.configs}
    asked = call.services.root, topic.name, count, config
    if validate_only:
        create: Callable[[], object] = partial(check_log_topic, *asked)
    else:
        create = partial(create_log_topic, *asked, call.check_deadline)
    made = await change_topic(call, topic.name, create, count)
    return _created(topic.name, made, count)


def _created(name: str, made: ApiError, count: int) -> Any:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name,
        error_code=made.code,
        error_message=made.message,
        num_partitions=-1 if made.code else count,
        replication_factor=-1 if made.code else _REPLICAS,
        configs=[],
    )


CREATE_TOPICS = ApiHandler("CreateTopics", _create_topics)


# --- CreatePartitions (API key 37): adds partitions to topics -------------------------------------


CreatePartitionsResponse = struct("CreatePartitionsResponse")


async def _create_partitions(call: RequestContext, request: Any) -> Any:
    refused = _repeated(each.name for each in request.topics)
    return CreatePartitionsResponse(
        results=[
            _grown(name, _REPEATED)
            if name in refused
            else await _add_partitions(call, topic, request.validate_only)
            for name, topic in {each.name: each for each in request.topics}.items()
        ]
    )


async def _add_partitions(call: RequestContext, topic: Any, validate_only: bool) -> Any:
    named = call.services.root, topic.name, topic.count
    made = _DENIED
    if call.authorize(ALTER, TOPIC, topic.name):
        if validate_only:
            grow = partial(check_more_partitions, *named)
        else:
            grow = partial(alter_topic, *named, lambda _: call.check_deadline())
        made = await change_topic(call, topic.name, grow, topic.count)
    return _grown(topic.name, made)


def _grown(name: str, made: ApiError) -> Any:
    return CreatePartitionsResponse.CreatePartitionsTopicResult(
        name=name, error_code=made.code, error_message=made.message
    )


CREATE_PARTITIONS = ApiHandler("CreatePartitions", _create_partitions)


# --- DeleteTopics (API key 20): removes topics from the catalogue ---------------------------------


DeleteTopicsResponse = struct("DeleteTopicsResponse")
_DeletedTopic = DeleteTopicsResponse.DeletableTopicResult
# From this version on, a request may name a topic by its id. Topics have no ids here.
_TOPIC_ID_VERSION = 6
_UNKNOWN_ID = ApiError(int(ErrorCode.UNKNOWN_TOPIC_ID), "topics have no ids here: name them")


async def _delete_topics(call: RequestContext, request: Any) -> Any:
    if call.version < _TOPIC_ID_VERSION:
        named = [(name, NO_UUID) for name in request.topic_names]
    else:
        named = [(topic.name, topic.topic_id) for topic in request.topics]
    refused = _repeated(name for name, _ in named if name is not None)
    responses = [
        _deleted(name, topic_id, _REPEATED)
        if name in refused
        else await _delete_topic(call, name, topic_id)
        for name, topic_id in dict.fromkeys(named)
    ]
    return DeleteTopicsResponse(responses=responses)


async def _delete_topic(call: RequestContext, name: str | None, topic_id: bytes) -> Any:
    made = _UNKNOWN_ID
    if name is not None and not call.authorize(DELETE, TOPIC, name):
        made = _DENIED._replace(message="Topic authorization failed.")
    elif name is not None:
        services = call.services
        delete = partial(delete_topic, services.root, name, call.check_deadline)
        made = await change_topic(call, name, delete)
    return _deleted(name, topic_id, made)


def _deleted(name: str | None, topic_id: bytes, made: ApiError) -> Any:
    return _DeletedTopic(
        name=name, topic_id=topic_id, error_code=made.code, error_message=made.message
    )


DELETE_TOPICS = ApiHandler("DeleteTopics", _delete_topics)
