"""Consumers: each reads some partitions of a topic from the first offset on, by any gateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.record.memory_records import MemoryRecords

from group_coordinator.schemas.errors import ErrorCode
from tests.trials.gateways.connection import Client, Lost
from tests.trials.gateways.promises import DENIED, READ_IN_ORDER

if TYPE_CHECKING:
    from tests.trials.gateways.ledger import Ledger

_VERSION = 11
_ENDS_VERSION = 5
_METADATA_VERSION = 9
_LATEST, _EARLIEST = -1, -2
_MOST_BYTES = 20_000
_ASK_FOR_ENDS = 0.4
_ASK_FOR_PARTITIONS = 0.05
_BEGIN_AGAIN = 0.2
# How often a consumer turns to another gateway, as when partitions have other leaders.
_MOVES = 0.03
_AGAIN = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class Consumer:
    """Reads partitions of a topic; `positions` are the offsets that come next."""

    def __init__(
        self, client: Client, ledger: Ledger, topic: str, partitions: int, rereads: bool = False
    ) -> None:
        self.client = client
        self.topic = topic
        self.is_quiet = False
        self.positions = dict.fromkeys(range(partitions), 0)
        self._ledger = ledger
        self._rereads = rereads
        # The number of partitions in the last Metadata response of this connection.
        self._told = 0

    async def run(self) -> None:
        """Read until all is quiet and everything is read."""
        chance = self.client.chance
        while not (self.is_quiet and self.has_read_all()):
            try:
                if chance.random() < _ASK_FOR_ENDS:
                    await self._ask_for_ends()
                if chance.random() < _ASK_FOR_PARTITIONS:
                    await self._ask_for_partitions()
                await self._fetch()
                self._begin_again()
                if chance.random() < _MOVES:
                    self._told = 0
                    self.client.leave()
            except Lost:
                self._told = 0
                self.client.world.count("lost")
                await asyncio.sleep(chance.uniform(0.05, 0.3))

    def has_read_all(self) -> bool:
        """Whether every partition is read to its end, as the commits of its table have it."""
        return len(self.positions) == self._ledger.counts.get(self.topic, 0) and all(
            position == self._ledger.length(self.topic, partition)
            for partition, position in self.positions.items()
        )

    async def _fetch(self) -> None:
        begun = self.client.world.now
        topic: Any = FetchRequest.FetchTopic
        asked = [
            topic.FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=_MOST_BYTES
            )
            for partition, offset in self.positions.items()
        ]
        request = FetchRequest(
            max_wait_ms=self.client.chance.choice((50, 200, 500)),
            min_bytes=1,
            max_bytes=4 * _MOST_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[topic(topic=self.topic, partitions=asked)],
        )
        answer = await self.client.ask(request, _VERSION, FetchResponse)
        again = False
        for each in answer.responses[0].partitions:
            code = ErrorCode(each.error_code)
            self.client.world.count(f"fetched: {code.name}")
            if code is ErrorCode.NONE:
                self._take(each, begun)
            elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._begin_anew(each.partition_index)
            elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._check_denied(begun)
                again = True
            elif code in _AGAIN:
                again = True
            else:
                self.client.world.violate(READ_IN_ORDER, f"a fetch was answered {code.name}")
        if again:
            await asyncio.sleep(self.client.chance.uniform(0.02, 0.2))

    def _take(self, found: Any, begun: float) -> None:
        world, partition = self.client.world, found.partition_index
        offset = self.positions[partition]
        records = _records(found.records)
        self._ledger.on_read(self.topic, partition, offset, records, found.high_watermark)
        self._ledger.on_start(self.topic, partition, found.log_start_offset)
        world.check(DENIED)
        acls = self._ledger.acls
        if records and not acls.was_allowed(self.client.host, "READ", self.topic, begun, world.now):
            world.violate(DENIED, f"{self.client.host} was given records of {self.topic}")
        self.positions[partition] = offset + len(records)

    async def _begin_anew(self, partition: int) -> None:
        """Reset a position that is out of range: records were removed, or the topic is new."""
        world = self.client.world
        offset = self.positions[partition]
        world.check(READ_IN_ORDER)
        logs = self._ledger.logs.get(self.topic, [])
        is_gone = any(offset < log.start(partition) for log in logs)
        if len(logs) < 2 and not is_gone:
            world.violate(
                READ_IN_ORDER, f"{self.topic}-{partition}@{offset} was out of range, and is not"
            )
        world.count("positions begun anew")
        code, start = await self._list_offset(partition, _EARLIEST)
        if code is ErrorCode.NONE:
            self._ledger.on_start(self.topic, partition, start)
            self.positions[partition] = start

    def _begin_again(self) -> None:
        """Read again from the first offset, which may have been removed."""
        if self._rereads and not self.is_quiet and self.client.chance.random() < _BEGIN_AGAIN:
            self.positions = dict.fromkeys(self.positions, 0)

    async def _ask_for_partitions(self) -> None:
        topic: Any = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(
            topics=[topic(name=self.topic)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        answer = await self.client.ask(request, _METADATA_VERSION, MetadataResponse)
        told = answer.topics[0]
        self.client.world.count(f"asked for partitions: {ErrorCode(told.error_code).name}")
        if told.error_code == ErrorCode.NONE:
            count = len(told.partitions)
            self._ledger.on_partitions(self.topic, count, self._told)
            self._told = count
            self.positions |= dict.fromkeys(range(len(self.positions), count), 0)

    def _check_denied(self, begun: float) -> None:
        world = self.client.world
        world.check(DENIED)
        asked = self.client.host, "READ", self.topic, begun, world.now
        if not self._ledger.acls.was_denied(*asked):
            world.violate(DENIED, f"{self.client.host} may read {self.topic}, and was denied")

    async def _ask_for_ends(self) -> None:
        partition = self.client.chance.choice(list(self.positions))
        begun, least = self.client.world.now, self._ledger.least_end(self.topic, partition)
        code, end = await self._list_offset(partition, _LATEST)
        if code is ErrorCode.NONE:
            self._ledger.on_end(self.topic, partition, end, least, begun)

    async def _list_offset(self, partition: int, timestamp: int) -> tuple[ErrorCode, int]:
        topic: Any = ListOffsetsRequest.ListOffsetsTopic
        asked = topic.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=-1, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[topic(name=self.topic, partitions=[asked])],
        )
        answer = await self.client.ask(request, _ENDS_VERSION, ListOffsetsResponse)
        found = answer.topics[0].partitions[0]
        code = ErrorCode(found.error_code)
        self.client.world.count(f"asked for ends: {code.name}")
        return code, found.offset


def _records(data: bytes | None) -> list[tuple[int, bytes]]:
    found = []
    batches = MemoryRecords(data or b"")
    while batches.has_next():
        found += [(record.offset, record.value) for record in batches.next_batch()]
    return found
