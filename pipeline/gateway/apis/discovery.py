"""The APIs of discovery (ApiVersions, Metadata, FindCoordinator, DescribeCluster) and of SASL.

Every gateway serves every group and partition. The hash of the group id, or of topic and partition,
selects a live gateway, so that clients are spread over them. Topics have no ids: Metadata responses
from version 10 on have zeros. With auto.create.topics.enable, Metadata creates a missing topic that
a client names.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import CLUSTER, CREATE, DESCRIBE, GROUP, TOPIC
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.apis.topic_changes import change_topic
from group_coordinator.pipeline.quoting import quoted_name, quoted_text
from group_coordinator.pipeline.tables import InvalidTopic, check_name
from group_coordinator.pipeline.topics import create_log_topic
from group_coordinator.schemas.acls import CLUSTER_NAME
from group_coordinator.schemas.apis import APIS
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.schema import NO_UUID
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from group_coordinator.pipeline.gateway.request_context import RequestContext

log = logging.getLogger(__name__)


# --- ApiVersions (API key 18; KIP-35, KIP-511) ----------------------------------------------------


ApiVersionsResponse = struct("ApiVersionsResponse")


async def _api_versions(_call: RequestContext, _request: Any) -> Any:
    return supported_versions(ErrorCode.NONE)


def supported_versions(code: int) -> Any:
    """Return the ApiVersions response: the versions that a gateway supports of each API.

    With UNSUPPORTED_VERSION, it must be encoded in version 0 (KIP-511).
    """
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=api.key, min_version=api.lowest, max_version=api.highest
            )
            for api in sorted(APIS.values(), key=lambda api: api.key)
            if api.versions
        ],
        finalized_features_epoch=-1,
    )


API_VERSIONS = ApiHandler("ApiVersions", _api_versions)


# --- Metadata (API key 3): the gateways, and the topics with their partitions ---------------------


MetadataResponse = struct("MetadataResponse")

_Topic = MetadataResponse.MetadataResponseTopic
# From this version on, a request may name a topic by its id alone.
_TOPIC_ID_VERSION = 12


async def _metadata(call: RequestContext, request: Any) -> Any:
    not_created: set[str] = set()
    if call.services.settings.auto_create_topics_enable and request.allow_auto_topic_creation:
        not_created = await _create_missing(call, request)
    # A topic may have 10,000 partitions, and there may be any number of topics.
    return await call.in_thread(_described, call, request, not_created)


def _described(call: RequestContext, request: Any, not_created: Container[str]) -> Any:
    brokers = call.services.brokers.alive(call.listener)
    counts = call.services.topics.counts()
    # Version 0 has no null, so an empty list asks for all topics.
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [
            _topic(call, name, counts[name])
            for name in sorted(counts)
            if call.authorize(DESCRIBE, TOPIC, name)
        ]
    else:
        # As in Kafka, the response has a topic once, even if the request repeats it.
        wanted = dict.fromkeys((each.name, each.topic_id) for each in request.topics)
        topics = [
            _denied(name) if name in not_created else _asked_for(call, name, topic_id, counts)
            for name, topic_id in wanted
        ]
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=each.node_id, host=each.host, port=each.port, rack=None
            )
            for each in brokers
        ],
        cluster_id=call.services.cluster_id,
        controller_id=brokers[0].node_id,
        topics=topics,
    )


async def _create_missing(call: RequestContext, request: Any) -> set[str]:
    """Create the requested topics that are missing; return those that the client may not create.

    A topic that cannot be created for another reason is reported as unknown.
    """
    denied = set()
    services = call.services
    wanted = {each.name for each in request.topics or () if each.name is not None}
    for name in sorted(wanted - services.topics.counts().keys()):
        if not call.authorize(DESCRIBE, TOPIC, name) or not (
            call.authorize(CREATE, CLUSTER, CLUSTER_NAME) or call.authorize(CREATE, TOPIC, name)
        ):
            denied.add(name)
            continue
        make = partial(create_log_topic, services.root, name, services.settings.num_partitions, {})
        made = await change_topic(call, name, make)
        if made.code:
            why = quoted_text(made.message)
            log.warning("topic %s is not created: %s", quoted_name(name), why)
    return denied


def _denied(name: str) -> Any:
    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return _Topic(error_code=code, name=name, topic_id=NO_UUID, partitions=[])


def _asked_for(
    call: RequestContext, name: str | None, topic_id: bytes, counts: Mapping[str, int]
) -> Any:
    if name is None and call.version < _TOPIC_ID_VERSION:
        # As in Kafka: versions 10 and 11 have topic ids, but do not support a null name.
        code = int(ErrorCode.INVALID_REQUEST)
        return _Topic(error_code=code, name="", topic_id=topic_id, partitions=[])
    if name is None:
        code = int(ErrorCode.UNKNOWN_TOPIC_ID)
        return _Topic(error_code=code, name=None, topic_id=topic_id, partitions=[])
    if not call.authorize(DESCRIBE, TOPIC, name):
        return _denied(name)
    if name in counts:
        return _topic(call, name, counts[name])
    code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        check_name(name)
    except InvalidTopic:
        code = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
    return _Topic(error_code=code, name=name, topic_id=NO_UUID, partitions=[])


def _topic(call: RequestContext, name: str, count: int) -> Any:
    partitions = []
    for number in range(count):
        leader = call.services.brokers.gateway_for(f"{name}-{number}", call.listener).node_id
        partitions.append(
            _Topic.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=leader,
                leader_epoch=0,
                replica_nodes=[leader],
                isr_nodes=[leader],
                offline_replicas=[],
            )
        )
    return _Topic(
        error_code=0, name=name, topic_id=NO_UUID, is_internal=False, partitions=partitions
    )


METADATA = ApiHandler("Metadata", _metadata, in_thread=True)


# --- FindCoordinator (API key 10): the gateway that the members of a group connect to -------------


FindCoordinatorResponse = struct("FindCoordinatorResponse")
# Key types: the id of a group, and a transactional id.
_GROUP, _TRANSACTION = 0, 1
# From this version on, a request names any number of groups (KIP-699).
_MANY_KEYS = 4
# More keys are looked up in a thread, so that the event loop serves other clients.
_MOST_KEYS_AT_ONCE = 100


async def _find_coordinator(call: RequestContext, request: Any) -> Any:
    if len(request.coordinator_keys or ()) > _MOST_KEYS_AT_ONCE:
        return await call.in_thread(_coordinators, call, request)
    return _coordinators(call, request)


def _coordinators(call: RequestContext, request: Any) -> Any:
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
    # Transactions and share groups have no coordinator here. A transactional producer gets an error
    # that it does not retry, because otherwise it would retry forever.
    if call.version and key_type != _GROUP:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if key_type == _TRANSACTION:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        message = f"key_type {key_type}: there are coordinators of consumer groups (0) only"
        return _no_coordinator(code, message)
    if not call.authorize(DESCRIBE, GROUP, key):
        return _no_coordinator(ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    broker = call.services.brokers.gateway_for(key, call.listener)
    return {
        "node_id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "error_code": 0,
        "error_message": None,
    }


def _no_coordinator(code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": int(code),
        "error_message": message,
    }


FIND_COORDINATOR = ApiHandler("FindCoordinator", _find_coordinator)


# --- DescribeCluster (API key 60; KIP-700): the gateways that are alive ---------------------------


DescribeClusterResponse = struct("DescribeClusterResponse")
# The endpoint type of brokers. There are no controllers that clients can connect to.
_BROKERS = 1


async def _describe_cluster(call: RequestContext, request: Any) -> Any:
    if call.version and request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
            error_message="there are brokers only",
            endpoint_type=request.endpoint_type,
            cluster_id=call.services.cluster_id,
            brokers=[],
        )
    alive = call.services.brokers.alive(call.listener)
    return DescribeClusterResponse(
        error_code=0,
        error_message=None,
        endpoint_type=_BROKERS,
        cluster_id=call.services.cluster_id,
        controller_id=alive[0].node_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=each.node_id, host=each.host, port=each.port, rack=None, is_fenced=False
            )
            for each in alive
        ],
    )


DESCRIBE_CLUSTER = ApiHandler("DescribeCluster", _describe_cluster)


# --- SaslHandshake (17) and SaslAuthenticate (36), after authentication or without SASL -----------


# During authentication, `pipeline.gateway.authenticator` answers both (KIP-152).
SaslHandshakeResponse = struct("SaslHandshakeResponse")


async def _sasl_handshake(_call: RequestContext, _request: Any) -> Any:
    return SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE), mechanisms=[])


SASL_HANDSHAKE = ApiHandler("SaslHandshake", _sasl_handshake)


SaslAuthenticateResponse = struct("SaslAuthenticateResponse")


async def _sasl_authenticate(_call: RequestContext, _request: Any) -> Any:
    return SaslAuthenticateResponse(
        error_code=int(ErrorCode.ILLEGAL_SASL_STATE),
        error_message="there is no authentication to be done now",
        auth_bytes=b"",
        session_lifetime_ms=0,
    )


SASL_AUTHENTICATE = ApiHandler("SaslAuthenticate", _sasl_authenticate)
