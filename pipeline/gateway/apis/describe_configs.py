"""DescribeConfigs (API key 32): the configs of topics, and the settings of this gateway.

Configs of Kafka that have no effect here are not listed. All entries are read-only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from group_coordinator.coordinator import authorization
from group_coordinator.coordinator.authorization import CLUSTER, TOPIC
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway_settings import GatewaySettings
from group_coordinator.pipeline.topics import TopicConfig, decode_config
from group_coordinator.schemas.acls import CLUSTER_NAME
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from group_coordinator.pipeline.gateway.request_context import RequestContext

DescribeConfigsResponse = struct("DescribeConfigsResponse")
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = _Result.DescribeConfigsResourceResult
_Synonym = _Entry.DescribeConfigsSynonym
_DESCRIBE = authorization.DESCRIBE_CONFIGS
# Resource types.
_TOPIC, _BROKER = 2, 4
# Sources of a value.
_OF_TOPIC, _OF_BROKER, _DEFAULT = 1, 4, 5
# Kafka's types of configs.
_BOOLEAN, _STRING, _INT, _LONG, _LIST = 1, 2, 3, 5, 7
_TYPES = {
    "retention.ms": _LONG,
    "retention.bytes": _LONG,
    "max.message.bytes": _INT,
    "message.timestamp.type": _STRING,
    "message.timestamp.after.max.ms": _LONG,
    "cleanup.policy": _LIST,
    "compression.type": _STRING,
    "max.connections": _INT,
    "max.connections.per.ip": _INT,
    "connections.max.idle.ms": _LONG,
    "socket.request.max.bytes": _INT,
    "queued.max.requests": _INT,
    "queued.max.request.bytes": _LONG,
    "fetch.max.bytes": _INT,
    "sasl.enabled.mechanisms": _LIST,
    "sasl.server.max.receive.size": _INT,
    "node.id": _INT,
    "advertised.listeners": _STRING,
    "auto.create.topics.enable": _BOOLEAN,
    "num.partitions": _INT,
    "default.replication.factor": _INT,
}


class _Config(NamedTuple):
    name: str
    value: str
    source: int


class _Unknown(Exception):
    """Error for a resource that is not described, with Kafka's error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


async def _describe_configs(call: RequestContext, request: Any) -> Any:
    # A request may name thousands of resources, and each has about 20 entries.
    return await call.in_thread(_described, call, request)


def _described(call: RequestContext, request: Any) -> Any:
    return DescribeConfigsResponse(
        results=[_result(call, each, request.include_synonyms) for each in request.resources]
    )


def _result(call: RequestContext, resource: Any, with_synonyms: bool) -> Any:
    kind, name, keys = resource.resource_type, resource.resource_name, resource.configuration_keys
    code, message = ErrorCode.NONE, None
    configs: list[_Config] = []
    try:
        if kind == _TOPIC and not call.authorize(_DESCRIBE, TOPIC, name):
            raise _Unknown(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
        if kind == _BROKER and not call.authorize(_DESCRIBE, CLUSTER, CLUSTER_NAME):
            raise _Unknown(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
        if kind == _TOPIC:
            configs = list(_of_topic(call, name))
        elif kind == _BROKER:
            configs = list(_of_broker(call, name))
        else:
            raise _Unknown(
                ErrorCode.INVALID_REQUEST, f"resource type {kind}: topics (2) and brokers (4) only"
            )
    except _Unknown as error:
        code, message = error.code, str(error)
    return _Result(
        error_code=int(code),
        error_message=message,
        resource_type=kind,
        resource_name=name,
        configs=[
            _entry(each, with_synonyms) for each in configs if keys is None or each.name in keys
        ],
    )


def _entry(config: _Config, with_synonyms: bool) -> Any:
    synonym = _Synonym(name=config.name, value=config.value, source=config.source)
    return _Entry(
        name=config.name,
        value=config.value,
        read_only=True,
        config_source=config.source,
        is_default=config.source == _DEFAULT,
        is_sensitive=False,
        synonyms=[synonym] if with_synonyms else [],
        config_type=_TYPES[config.name],
        documentation=None,
    )


# --- the configs ----------------------------------------------------------------------------------


def _of_topic(call: RequestContext, name: str) -> Iterable[_Config]:
    found = call.services.topics.find(name)
    if found is None:
        raise _Unknown(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    _, definition = found
    if definition is None:
        return []
    if definition.config is not None:
        return _typed(decode_config(definition.config), TopicConfig(), _OF_TOPIC)
    # A user's table: the other configs depend on the processes that write to it.
    if definition.timestamp_column is None:
        return [_Config("message.timestamp.type", "LogAppendTime", _OF_TOPIC)]
    return [_Config("message.timestamp.type", "CreateTime", _DEFAULT)]


def _of_broker(call: RequestContext, name: str) -> Iterable[_Config]:
    brokers, settings = call.services.brokers, call.services.settings
    own = brokers.own
    if name and name != str(own.node_id):
        raise _Unknown(
            ErrorCode.INVALID_REQUEST,
            f"broker {name!r}: this is {own.node_id}, and a broker describes itself only",
        )
    # An empty name means the cluster-wide defaults. None can be set here.
    if not name:
        return []
    advertised = (f"{name}://{at.host}:{at.port}" for name, at in brokers.own_by_listener.items())
    return [
        *_typed(settings, GatewaySettings(), _OF_BROKER),
        _Config("node.id", str(own.node_id), _OF_BROKER),
        _Config("advertised.listeners", ",".join(advertised), _OF_BROKER),
        _Config("default.replication.factor", "1", _DEFAULT),
    ]


def _typed(values: msgspec.Struct, defaults: msgspec.Struct, source: int) -> Iterable[_Config]:
    """Yield the fields of a Struct that are configs of Kafka.

    `source` is the source of a value that differs from its default.
    """
    for field in msgspec.structs.fields(values):
        name = field.encode_name
        if name in _TYPES:
            value, default = (getattr(each, field.name) for each in (values, defaults))
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield _Config(name, text, _DEFAULT if value == default else source)


DESCRIBE_CONFIGS = ApiHandler("DescribeConfigs", _describe_configs, in_thread=True)
