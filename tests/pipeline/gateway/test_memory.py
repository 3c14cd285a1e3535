"""The resident memory of a gateway's process under the worst requests that its limits allow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.pipeline.gateway.default_record_batch import encode_batch
from group_coordinator.pipeline.topics import Record, create_log_topic
from tests.pipeline.gateway.raw import Client, connected
from tests.pipeline.gateway.test_fuzz import gateway_process, resident_mb
from tests.pipeline.gateway.test_long_requests import fetch_request
from tests.pipeline.gateway.test_produced_batch import CODECS, compressed, torn, with_records

pytestmark = pytest.mark.long
RETURNS_MB = 50
# Within seconds of the last request.
SETTLE_S = 8.0
# The limits of the gateway by default: a share of queued.max.request.bytes, an answer that is
# joined and written beside it, and 64 kB for each connection.
FETCHES_MB = 300


def produce(client: Client, batches: Sequence[bytes]) -> list[int]:
    topic = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=60_000,
        topic_data=[
            topic(
                name="orders",
                partition_data=[topic.PartitionProduceData(index=0, records=each)],
            )
            for each in batches
        ],
    )
    response = client.ask(request, ProduceResponse, 8)
    return [each.partition_responses[0].error_code for each in response.responses]


def records(count: int, size: int) -> bytes:
    """A batch of a few kB that becomes `count` records of `size` bytes."""
    plain = encode_batch([Record(n, 1_000, None, bytes(size)) for n in range(count)])
    return with_records(plain, compressed("zstd", plain[61:]), attributes=CODECS["zstd"])


def fetch(wait_ms: int, least: int) -> FetchRequest:
    request = fetch_request([(0, 0)], wait_ms, least, 1 << 30)
    request.topics[0].partitions[0].partition_max_bytes = 1 << 30
    return request


def peak_mb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) >> 10
    raise AssertionError("no VmHWM")


def refused(broker: Broker) -> None:
    """Four Produce requests of 20 batches, of which each becomes 52 MB and more."""
    batch = records(60, 1_000_000)
    with connected(broker) as client:
        for _ in range(4):
            assert set(produce(client, [batch] * 20)) == {10}


def torn_batches(broker: Broker) -> None:
    """Ten Produce requests of 20 batches that cannot be decompressed to their end."""
    batch = torn("zstd", bytes(2_000_000))
    with connected(broker) as client:
        for _ in range(10):
            assert set(produce(client, [batch] * 20)) == {2}


@contextmanager
def fetching(broker: Broker, count: int, request: Callable[[], Any]) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(broker)) for _ in range(count)]
        for client in clients:
            client.send(request(), 11)
        yield clients


def parked(broker: Broker) -> None:
    """120 requests of 90 bytes that wait for more than there is."""
    with fetching(broker, 120, lambda: fetch(60_000, 1 << 30)):
        time.sleep(SETTLE_S)


def unread(broker: Broker) -> None:
    """60 requests of 90 bytes whose answers are not read."""
    with fetching(broker, 60, lambda: fetch(0, 0)):
        time.sleep(SETTLE_S)


def test_memory_returns_after_the_worst_requests(root: str, tmp_path: Path) -> None:
    create_log_topic(root, "orders", 1)
    found = {}
    with gateway_process(root, tmp_path / "log") as (process, broker):
        with connected(broker) as client:
            for _ in range(5):
                assert produce(client, [records(10, 1_000_000)]) == [0]
        # Warm-up: once each, so that pools have what they keep.
        for story in (refused, torn_batches, parked, unread):
            story(broker)
        time.sleep(SETTLE_S)
        for story in (refused, torn_batches, parked, unread):
            before = resident_mb(process.pid)
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")
            story(broker)
            peak = peak_mb(process.pid) - before
            until = time.monotonic() + SETTLE_S
            while (kept := resident_mb(process.pid) - before) > RETURNS_MB:
                if time.monotonic() > until:
                    break
                time.sleep(0.2)
            found[story.__name__] = peak, kept
            print(f"| {story.__doc__} | {before} | {peak} | {kept} |")
    assert {name: kept for name, (_, kept) in found.items() if kept > RETURNS_MB} == {}
    assert found["unread"][0] < FETCHES_MB
