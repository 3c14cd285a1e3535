"""InitProducerId (API key 22): an id for an idempotent producer. There are no transactions.

Source: Apache Kafka, TransactionCoordinator.handleInitProducerId: a producer without a
transactional id always gets a new id with epoch 0, whether or not it had one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import CLUSTER, IDEMPOTENT_WRITE, TOPIC, WRITE
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.schemas.acls import CLUSTER_NAME
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.request_context import RequestContext

InitProducerIdResponse = struct("InitProducerIdResponse")
log = logging.getLogger(__name__)

_NONE = -1


async def _answer(call: RequestContext, request: Any) -> Any:
    if request.transactional_id is not None:
        return _response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not (call.may(IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME) or call.may_any(WRITE, TOPIC)):
        return _response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        producer_id = await call.services.producing.new_producer_id()
    except STORE_FAILS as error:
        # Clients retry after this error code.
        log.warning("no producer id can be given: %s", first_line(error))
        return _response(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _response(ErrorCode.NONE, producer_id, 0)


def _response(code: ErrorCode, producer_id: int = _NONE, producer_epoch: int = _NONE) -> Any:
    return InitProducerIdResponse(
        error_code=int(code), producer_id=producer_id, producer_epoch=producer_epoch
    )


API = ApiHandler("InitProducerId", _answer)
