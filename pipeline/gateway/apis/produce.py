"""The APIs of producers: Produce and InitProducerId.

A topic that is a user's table accepts no records: they are the rows of that table. There are no
transactions. Acknowledged records are in the table, so acks=1 is as durable as acks=all. A
request's timeout limits the client's wait, and does not cancel the append.

Source: Apache Kafka, TransactionCoordinator.handleInitProducerId: a producer without a
transactional id always gets a new id with epoch 0.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.authorization import CLUSTER, IDEMPOTENT_WRITE, TOPIC, WRITE
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import Failure, first_line, without_traceback
from group_coordinator.pipeline.gateway.api import ApiHandler
from group_coordinator.pipeline.gateway.compression import Budget
from group_coordinator.pipeline.gateway.log_writers import ProducedBatch, queued_size
from group_coordinator.pipeline.gateway.wire import InvalidFrame
from group_coordinator.pipeline.quoting import quoted_name, quoted_text
from group_coordinator.pipeline.topics import (
    Appended,
    AppendStateUnknown,
    BatchRefused,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    UnknownTopicOrPartition,
)
from group_coordinator.schemas.acls import CLUSTER_NAME
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.structs import struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.gateway.request_context import RequestContext
    from group_coordinator.pipeline.topics import Outcome
    from group_coordinator.schemas.rows import TopicTable

log = logging.getLogger(__name__)


# --- Produce (API key 0): appends records to topics that have a log table -------------------------


ProduceResponse = struct("ProduceResponse")
_Topic = ProduceResponse.TopicProduceResponse
_NO_VALUE = -1
_ALL = -1
_ACKS = (_ALL, 0, 1)
_CODES: dict[type[Failure], ErrorCode] = {
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    # The topic was deleted by another process, and the gateway has not read that yet.
    UnknownTopicOrPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    # Clients send the batch again, as after a disk failure of a broker.
    AppendStateUnknown: ErrorCode.KAFKA_STORAGE_ERROR,
}


async def _produce(call: RequestContext, request: Any) -> Any:
    _check_capacity(call, request)
    budget = Budget()
    appends = [_Append(call, request, topic, budget) for topic in request.topic_data]
    for each in appends:
        each.begin()
    # The batches are queued, and nothing was awaited. So later requests append after them.
    call.on_queued()
    responses = await asyncio.gather(*(each.response() for each in appends))
    if request.acks == 0:
        # As in Kafka, the connection is closed upon an error if the client waits for no response.
        for topic in responses:
            for each in topic.partition_responses:
                if each.error_code:
                    raise InvalidFrame(
                        f"{quoted_name(topic.name)}, partition {each.index}, was produced to with "
                        f"acks=0, and was refused: {quoted_text(each.error_message)}"
                    )
        return None
    return ProduceResponse(responses=responses)


def _check_capacity(call: RequestContext, request: Any) -> None:
    """Raise InvalidFrame, which closes the connection, if the batches exceed the queue's memory.

    After an error response, later batches of the client could fit into the queue, and would be
    written before these ones.
    """
    asked = (each for topic in request.topic_data for each in topic.partition_data)
    if not call.services.log_writers.has_capacity(sum(queued_size(each.records) for each in asked)):
        raise InvalidFrame("the queue of batches to append is full: the store is slow or hangs")


class _Append:
    """The batches of one request for one topic."""

    def __init__(self, call: RequestContext, request: Any, topic: Any, budget: Budget) -> None:
        self._budget = budget
        self._call = call
        self._request = request
        self._topic = topic.name
        self._asked = topic.partition_data
        self._found: dict[int, Outcome] = {}
        self._batches: list[ProducedBatch] = []
        self._outcomes: asyncio.Future[list[Outcome]] | None = None

    def begin(self) -> None:
        call, topic = self._call, self._topic
        try:
            count, definition = _find(call, self._request, topic)
        except BatchRefused as refused:
            error = without_traceback(refused)
            self._found = dict.fromkeys((each.index for each in self._asked), error)
            return
        for each in self._asked:
            if not 0 <= each.index < count:
                why = f"there is no {quoted_text(topic)}-{each.index}"
                self._found[each.index] = BatchRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
            else:
                data = None if each.records is None else bytes(each.records)
                self._batches.append(ProducedBatch(each.index, data, call.version, self._budget))
        self._outcomes = call.services.log_writers.append(definition, self._batches)

    async def response(self) -> Any:
        """Return the topic's part of the response, once the batches are written or refused."""
        if self._outcomes is not None:
            outcomes = await self._written(self._outcomes)
            for batch, outcome in zip(self._batches, outcomes, strict=True):
                self._found[batch.partition] = outcome
        return _Topic(
            name=self._topic,
            partition_responses=[
                _partition_response(each.index, self._found[each.index]) for each in self._asked
            ],
        )

    async def _written(self, appending: asyncio.Future[list[Outcome]]) -> Sequence[Outcome]:
        # As in Kafka, the timeout applies to acks=all only.
        timeout_ms = self._request.timeout_ms
        timeout_s = max(timeout_ms, 1) / 1000 if self._request.acks == _ALL else None
        try:
            # A queued batch is appended even after the timeout. The client sends it again, and the
            # next batch of an idempotent producer may already be queued after it.
            return await asyncio.wait_for(asyncio.shield(appending), timeout_s)
        except TimeoutError:
            late = BatchRefused(ErrorCode.REQUEST_TIMED_OUT, f"{timeout_ms} ms have passed")
            return [late] * len(self._batches)


def _find(call: RequestContext, request: Any, topic: str) -> tuple[int, TopicTable]:
    """Return the topic's number of partitions, and its log table. Raises BatchRefused."""
    if not call.authorize(WRITE, TOPIC, topic):
        raise BatchRefused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    if request.acks not in _ACKS:
        raise BatchRefused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: -1, 0 or 1 go")
    if request.transactional_id is not None:
        raise BatchRefused(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "there are no transactions here"
        )
    found = call.services.topics.find(topic)
    if found is None:
        why = f"there is no topic {quoted_name(topic)}"
        raise BatchRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
    count, definition = found
    if definition is None:
        raise BatchRefused(
            ErrorCode.POLICY_VIOLATION, f"topic {topic!r} has no table for its records"
        )
    if definition.config is None:
        raise BatchRefused(
            ErrorCode.POLICY_VIOLATION, f"topic {topic!r} takes no records: write to its table"
        )
    return count, definition


def _partition_response(partition: int, outcome: Outcome) -> Any:
    if isinstance(outcome, Appended):
        return _Topic.PartitionProduceResponse(
            index=partition,
            error_code=int(ErrorCode.NONE),
            base_offset=outcome.base_offset,
            log_append_time_ms=_NO_VALUE if outcome.append_time is None else outcome.append_time,
            log_start_offset=outcome.log_start,
            record_errors=[],
            error_message=None,
        )
    if isinstance(outcome, BatchRefused):
        code = outcome.code
    else:
        code = _CODES.get(type(outcome), ErrorCode.UNKNOWN_SERVER_ERROR)
    return _Topic.PartitionProduceResponse(
        index=partition,
        error_code=int(code),
        base_offset=_NO_VALUE,
        log_append_time_ms=_NO_VALUE,
        log_start_offset=_NO_VALUE,
        record_errors=[],
        error_message=str(outcome),
    )


PRODUCE = ApiHandler("Produce", _produce)


# --- InitProducerId (API key 22): an id for an idempotent producer --------------------------------


InitProducerIdResponse = struct("InitProducerIdResponse")


async def _init_producer_id(call: RequestContext, request: Any) -> Any:
    if request.transactional_id is not None:
        return _producer_id_response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not (
        call.authorize(IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
        or call.authorize_by_resource_type(WRITE, TOPIC)
    ):
        return _producer_id_response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        producer_id = await call.services.log_writers.new_producer_id()
    except STORE_FAILS as error:
        # Clients retry after this error code.
        log.warning("no producer id can be assigned: %s", first_line(error))
        return _producer_id_response(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _producer_id_response(ErrorCode.NONE, producer_id, 0)


def _producer_id_response(
    code: ErrorCode, producer_id: int = _NO_VALUE, producer_epoch: int = _NO_VALUE
) -> Any:
    return InitProducerIdResponse(
        error_code=int(code), producer_id=producer_id, producer_epoch=producer_epoch
    )


INIT_PRODUCER_ID = ApiHandler("InitProducerId", _init_producer_id)
