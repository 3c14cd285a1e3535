"""DescribeCluster (API key 60; KIP-700): the gateways that are alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext

DescribeClusterResponse = struct("DescribeClusterResponse")
# The endpoint type of brokers. There are no controllers that clients can connect to.
_BROKERS = 1


async def _answer(call: RequestContext, request: Any) -> Any:
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


API = ApiHandler("DescribeCluster", _answer)
