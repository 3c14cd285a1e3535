"""What an answer to Fetch has of partitions whose records are too large to be sent together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse

from group_coordinator.pipeline.gateway.apis.fetch import _FetchReading
from group_coordinator.pipeline.gateway.compression import MOST_BYTES
from group_coordinator.pipeline.gateway.memory_pool import AddressQuota, MemoryPool, ResponseMemory
from group_coordinator.pipeline.gateway.request_context import RequestContext
from group_coordinator.pipeline.gateway.topic_logs import Bounds, TopicLogs
from group_coordinator.pipeline.gateway_settings import FREE_BYTES
from group_coordinator.pipeline.topics import Record
from group_coordinator.schemas.errors import ErrorCode
from tests.pipeline.gateway.connecting import plenty

VERSION = 11
# receive.message.max.bytes of librdkafka by default, whose fetch.max.bytes is `MOST_BYTES`.
MOST_RECEIVED = 100_000_000
TOPIC = FetchRequest.FetchTopic


class Logs:
    """Partitions of one record each, of these sizes."""

    def __init__(self, *sizes: int) -> None:
        self._sizes = sizes

    def bounds(self, _topic: str, _partition: int) -> Bounds:
        return Bounds(0, 1)

    def read(self, _topic: str, partition: int, *_: int) -> list[Record]:
        return [Record(0, 1_000, None, bytes(self._sizes[partition]))]


class BrokenLogs(Logs):
    """They end somewhere, and cannot be read up to there."""

    def read(self, *_: object) -> list[Record]:
        raise OSError("the store is away")


def fetched(
    logs: Logs, count: int, max_bytes: int, held: ResponseMemory | None = None
) -> tuple[list[Any], int]:
    """The partitions of an answer, and its size."""
    partition = TOPIC.FetchPartition
    asked = [
        partition(partition=each, fetch_offset=0, partition_max_bytes=max_bytes)
        for each in range(count)
    ]
    request = FetchRequest(topics=[TOPIC(topic="t", partitions=asked)])
    call = SimpleNamespace(
        version=VERSION, authorize=lambda *_: True, response_memory=held or plenty()
    )
    (part,) = _FetchReading(cast(RequestContext, call), request, max_bytes).parts()
    body = part(cast(TopicLogs, logs))
    assert body is not None
    found: Any = FetchResponse.decode(body, version=VERSION)
    return found.responses[0].partitions, len(body)


def answered(max_bytes: int, *sizes: int) -> tuple[list[bool], int]:
    """Which partitions' records are sent, and the size of all."""
    found, size = fetched(Logs(*sizes), len(sizes), max_bytes)
    return [bool(each.records) for each in found], size


@pytest.mark.parametrize(
    ("sizes", "sent"),
    [
        ((300, 300, 300), [True, True, False]),
        ((100, 2_000, 300), [True, False, True]),
        ((2_000, 2_000, 1), [True, False, False]),
    ],
)
def test_a_record_that_is_too_large_is_sent_alone(sizes: tuple[int, ...], sent: list[bool]) -> None:
    """Or nobody would get past it (KIP-74), and with others clients would refuse the answer."""
    assert answered(1_000, *sizes)[0] == sent


def test_who_asks_for_no_bytes_is_sent_a_record_all_the_same() -> None:
    assert answered(0, 300, 300)[0] == [True, False]


def test_what_cannot_be_read_is_an_error_and_not_the_end_of_a_partition() -> None:
    (found,), _ = fetched(BrokenLogs(1), 1, 1_000)
    assert (found.error_code, found.high_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, 1)


def test_the_largest_records_that_may_be_stored_can_be_fetched() -> None:
    """Two of them made an answer of 104,856,853 bytes."""
    sent, size = answered(MOST_BYTES, MOST_BYTES - 1_000, MOST_BYTES)
    assert size < MOST_RECEIVED
    assert sent == [True, False]


# --- memory that is left --------------------------------------------------------------------------


class ManyLogs(Logs):
    """Each partition has records of 1,000 bytes, as many as are asked for."""

    def __init__(self) -> None:
        super().__init__()

    def read(self, _topic: str, _partition: int, *sizes: int) -> list[Record]:
        count = max(1, sizes[-1] // 1_000)
        return [Record(n, 1_000, None, bytes(900)) for n in range(count)]


def test_a_fetch_takes_what_memory_is_left() -> None:
    memory = AddressQuota(MemoryPool(1_000_000), 400_000)
    _, size = fetched(ManyLogs(), 1, 50_000_000, ResponseMemory(memory))
    assert 350_000 < size < 410_000
    assert abs(memory.available - (400_000 - size)) < 1_000


def test_clients_of_an_address_that_has_no_memory_left_are_sent_64_kb_each() -> None:
    """Behind one NAT, a client that reads nothing of its answers stops none of the others."""
    memory = AddressQuota(MemoryPool(1_000_000), 400_000)
    ResponseMemory(memory).charge(500_000)
    for _ in range(3):
        _, size = fetched(ManyLogs(), 4, 50_000_000, ResponseMemory(memory))
        assert 60_000 < size < 2 * FREE_BYTES


def test_a_record_of_any_size_passes_while_memory_is_left_and_waits_while_none_is() -> None:
    memory = AddressQuota(MemoryPool(1_000_000), 400_000)
    first, second = ResponseMemory(memory), ResponseMemory(memory)
    (sent,), _ = fetched(Logs(2_000_000), 1, 50_000_000, first)
    assert sent.records
    (waits,), _ = fetched(Logs(2_000_000), 1, 50_000_000, second)
    assert not waits.records
    first.resize()
    assert memory.available == 400_000
    (sent,), _ = fetched(Logs(2_000_000), 1, 50_000_000, second)
    assert sent.records
