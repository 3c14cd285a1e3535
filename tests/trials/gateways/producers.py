"""Producers: idempotent ones with several batches in flight, and others with one at a time.

Like Kafka's producer, a producer resends a batch in its order until the final response: written, or
refused. An idempotent producer with a refused batch continues with a new id. A batch that follows
its predecessors must not be refused for its sequence.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka.record.default_records import DefaultRecordBatchBuilder
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.schemas.errors import ErrorCode
from tests.trials.gateways.connection import Client, Lost
from tests.trials.gateways.ledger import Sender, value_of
from tests.trials.gateways.log import Log
from tests.trials.gateways.promises import ACKNOWLEDGED, DENIED

if TYPE_CHECKING:
    from tests.trials.gateways.ledger import Ledger

_VERSION = 9
_ID_VERSION = 4
_IN_FLIGHT = 5
_MOST_RECORDS = 40
_TIMEOUT_MS = 2_000
# Errors after which a producer resends; the batch may be written, or may still be.
_AGAIN = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
_REFUSED = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}


class _Batch(Struct):
    number: int
    partition: int
    sequence: int
    values: list[bytes]
    # When it was sent first, and last; ms of true time.
    begun: float = -1.0


class Producer:
    """A producer for one partition of a topic, until the run is quiet."""

    def __init__(
        self, client: Client, ledger: Ledger, topic: str, partition: int, is_idempotent: bool
    ) -> None:
        self.client = client
        self.is_quiet = False
        # Batches that must still be written at the end of the run.
        self.unfinished: list[_Batch] = []
        self.sender = Sender(client.host, is_idempotent)
        ledger.senders[client.name] = self.sender
        self._ledger = ledger
        self._topic = topic
        self._partition = partition
        self._id = self._epoch = self._sequence = -1
        self._batch = self._number = 0
        # Where the last acknowledged batches are, by their numbers.
        self._acknowledged: dict[int, tuple[Log, int]] = {}

    async def run(self) -> None:
        """Produce; returns when all is quiet and nothing is unfinished."""
        chance = self.client.chance
        while not (self.is_quiet and not self.unfinished):
            try:
                await self.client.connect()
                if self.sender.is_idempotent and self._id < 0:
                    await self._take_id()
                if not self.unfinished:
                    self._fill()
                await self._send_all()
            except Lost:
                self.client.world.count("lost")
                await asyncio.sleep(chance.uniform(0.05, 0.3))
            if not self.unfinished:
                await asyncio.sleep(chance.uniform(0.0, 0.15))

    async def _take_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = await self.client.ask(request, _ID_VERSION, InitProducerIdResponse)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            self._ledger.on_producer_id(answer.producer_id)
            self._id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0
            return
        self.client.world.count(f"no producer id: {code.name}")
        raise Lost(code.name)

    def _fill(self) -> None:
        """Make the next batches: of an idempotent producer some, which are sent at once."""
        chance = self.client.chance
        for _ in range(chance.randint(1, _IN_FLIGHT) if self.sender.is_idempotent else 1):
            count = chance.randint(1, _MOST_RECORDS)
            values = [
                value_of(self.client.name, self._batch, self._number + each)
                for each in range(count)
            ]
            batch = _Batch(self._batch, self._partition, self._sequence, values)
            self.unfinished.append(batch)
            self._batch += 1
            self._number += count
            if self.sender.is_idempotent:
                self._sequence += count

    async def _send_all(self) -> None:
        """Send the unfinished batches, one request for each, and process the responses."""
        sent = [(batch, self._send(batch)) for batch in self.unfinished]
        is_first = True
        for batch, answer in sent:
            frame = await self.client.answer(answer)
            found = ProduceResponse.decode(frame, version=_VERSION, header=True)
            told = found.responses[0].partition_responses[0]
            code = ErrorCode(told.error_code)
            self.client.world.count(f"produced: {code.name}")
            if code is ErrorCode.NONE:
                self._take(batch, told.base_offset)
                self.unfinished.remove(batch)
            elif code in _REFUSED or self._is_of_another(code, batch):
                self._refused(batch, code)
                return
            elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_first:
                # One before it was not written, and is sent again before it.
                pass
            elif code in _AGAIN:
                is_first = False
            else:
                self.client.world.violate(
                    ACKNOWLEDGED,
                    f"{self.client.name} {batch.number} was refused: {code.name} "
                    f"{told.error_message}",
                )
        if self.unfinished:
            await asyncio.sleep(self.client.chance.uniform(0.02, 0.2))

    def _send(self, batch: _Batch) -> asyncio.Future[bytes]:
        world = self.client.world
        if batch.begun < 0:
            batch.begun = world.now
            self.sender.sent_at[batch.number] = world.now
            self.sender.ids[batch.number] = self._id
        topic: Any = ProduceRequest.TopicProduceData
        records = _records(self._id, self._epoch, batch, clock_ms())
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[
                topic(
                    name=self._topic,
                    partition_data=[
                        topic.PartitionProduceData(index=batch.partition, records=records)
                    ],
                )
            ],
        )
        return self.client.send(request, _VERSION)

    def _take(self, batch: _Batch, offset: int) -> None:
        log = self._ledger.on_acknowledged(self._topic, batch.partition, offset, batch.values)
        # A batch that was written despite an error is acknowledged by its retry, after later
        # batches.
        for number, (before, start) in self._acknowledged.items():
            if log is before and (number < batch.number) is not (start < offset):
                self.client.world.violate(
                    ACKNOWLEDGED,
                    f"{self.client.name} {batch.number} is at {offset}, and {number} at {start}",
                )
        self._acknowledged[batch.number] = log, offset
        self._acknowledged.pop(batch.number - 2 * _IN_FLIGHT, None)

    def _is_of_another(self, code: ErrorCode, batch: _Batch) -> bool:
        """Return whether a batch is out of order because its topic was created again.

        Like Kafka, a log accepts any sequence from an unknown producer. So a later batch may be the
        first of the new topic, while this one was sent to the previous topic.
        """
        logs = self._ledger.logs[self._topic]
        return code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.begun < logs[-1].made_at

    def _refused(self, batch: _Batch, code: ErrorCode) -> None:
        """Drop the unfinished batches: as far as is known, this batch was not written."""
        world, acls = self.client.world, self._ledger.acls
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            world.check(DENIED)
            asked = self.client.host, "WRITE", self._topic, batch.begun, world.now
            if not acls.was_denied(*asked):
                world.violate(DENIED, f"{self.client.host} may write {self._topic}, and was denied")
        self.unfinished.clear()
        self._id = -1
        self.client.leave()


def _records(producer_id: int, epoch: int, batch: _Batch, now_ms: int) -> bytes:
    idempotent = producer_id >= 0
    builder = DefaultRecordBatchBuilder(
        2, 0, False, producer_id, epoch, batch.sequence if idempotent else -1, 1 << 24
    )
    for number, value in enumerate(batch.values):
        builder.append(number, now_ms, None, value, [])
    return bytes(builder.build())
