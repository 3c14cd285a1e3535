"""A request that asks for much, or for one thing many times, stops nobody else's."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import confluent_kafka
import pytest
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from group_coordinator.pipeline.gateway import pending_request, session
from group_coordinator.pipeline.gateway.apis import fetch
from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.pipeline.gateway.request_context import RequestContext
from group_coordinator.pipeline.gateway.topic_logs import MOST_PARTITIONS_AT_ONCE, TopicLogs, Topics
from group_coordinator.pipeline.gateway_settings import FREE_BYTES
from group_coordinator.pipeline.tables.topic_catalogue import delete_topic
from group_coordinator.pipeline.topics import LogAppender, NewBatch, create_log_topic
from group_coordinator.schemas.errors import ErrorCode
from tests.pipeline.gateway.connecting import plenty
from tests.pipeline.gateway.raw import Client, connected
from tests.pipeline.gateway.running import gateway

LATEST = -1


@pytest.fixture
def broker(root: str) -> Iterator[Broker]:
    create_log_topic(root, "orders", 2)
    with gateway(root) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with connected(broker) as client:
        yield client


# --- one thing many times -------------------------------------------------------------------------


def test_a_topic_that_is_named_many_times_is_told_once(client: Client) -> None:
    topic = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(
        topics=[topic(name=each) for each in ["orders", "none"] * 800],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    answer = client.ask(request, MetadataResponse, 9)
    assert [each.name for each in answer.topics] == ["orders", "none"]


def list_offsets(client: Client, partitions: list[int]) -> list[tuple[int, int]]:
    of_topic = ListOffsetsRequest.ListOffsetsTopic
    wanted = [
        of_topic.ListOffsetsPartition(
            partition_index=each, timestamp=LATEST, current_leader_epoch=-1
        )
        for each in partitions
    ]
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[of_topic(name="orders", partitions=wanted)],
        timeout_ms=30_000,
    )
    (topic,) = client.ask(request, ListOffsetsResponse, 10).topics
    return [(each.partition_index, each.error_code) for each in topic.partitions]


def test_the_offsets_of_a_partition_that_is_named_twice_are_not_told(client: Client) -> None:
    twice = int(ErrorCode.INVALID_REQUEST)
    assert list_offsets(client, [0, 1, 0]) == [(0, twice), (1, 0), (0, twice)]


def test_a_request_of_many_partitions_is_answered_in_parts(client: Client) -> None:
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    numbers = range(2 * MOST_PARTITIONS_AT_ONCE + 1)
    found = list_offsets(client, list(numbers))
    assert found == [(each, 0 if each < 2 else unknown) for each in numbers]


def test_a_topic_that_is_changed_twice_is_not_changed(client: Client) -> None:
    twice = ErrorCode.INVALID_REQUEST, "Duplicate topic name."
    of_new = CreateTopicsRequest.CreatableTopic
    new = [
        of_new(name=each, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for each in ("a", "b", "a")
    ]
    creation = CreateTopicsRequest(topics=new, timeout_ms=30_000, validate_only=False)
    created = client.ask(creation, CreateTopicsResponse, 7)
    assert {each.name: (each.error_code, each.error_message) for each in created.topics} == {
        "a": twice,
        "b": (0, None),
    }
    of_grown = CreatePartitionsRequest.CreatePartitionsTopic
    more = [of_grown(name=each, count=3, assignments=None) for each in ("orders", "b", "orders")]
    growth = CreatePartitionsRequest(topics=more, timeout_ms=30_000, validate_only=False)
    grown = client.ask(growth, CreatePartitionsResponse, 3)
    assert {each.name: (each.error_code, each.error_message) for each in grown.results} == {
        "orders": twice,
        "b": (0, None),
    }
    deletion = DeleteTopicsRequest(topic_names=["b", "orders", "b"], timeout_ms=30_000)
    deleted = client.ask(deletion, DeleteTopicsResponse, 5)
    assert {each.name: each.error_code for each in deleted.responses} == {
        "b": ErrorCode.INVALID_REQUEST,
        "orders": 0,
    }


# --- long ones ------------------------------------------------------------------------------------


def test_a_long_request_is_read_and_answered_beside_the_loop(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's thread is the one that answers a heartbeat."""
    at_work: list[str] = []
    read, frame = session._decode, pending_request.response_frame

    def noted(what: str, of: Any) -> Any:
        def call(*arguments: Any) -> Any:
            at_work.append(f"{what} {threading.current_thread().name.partition('_')[0]}")
            return of(*arguments)

        return call

    monkeypatch.setattr(session, "_decode", noted("read", read))
    monkeypatch.setattr(pending_request, "response_frame", noted("answer", frame))
    assert list_offsets(client, [0]) == [(0, 0)]
    short = at_work[:]
    at_work.clear()
    many = list(range(FREE_BYTES // 8))
    assert len(list_offsets(client, many)) == len(many)
    assert "clients" not in short[0]
    assert [each.split()[:2] for each in at_work] == [["read", "clients"], ["answer", "clients"]]


def test_what_is_long_and_no_request_ends_its_connection(broker: Broker) -> None:
    with connected(broker) as client:
        client.socket.sendall((FREE_BYTES + 1).to_bytes(4, "big") + bytes([0, 99, 0, 0]))
        client.socket.sendall(bytes(FREE_BYTES - 3))
        assert client.is_closed()


# --- fetches that wait ----------------------------------------------------------------------------


def fetch_request(
    partitions: list[tuple[int, int]], max_wait_ms: int, min_bytes: int, max_bytes: int
) -> FetchRequest:
    of_topic = FetchRequest.FetchTopic
    wanted = [
        of_topic.FetchPartition(
            partition=number,
            current_leader_epoch=-1,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        for number, offset in partitions
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[of_topic(topic="orders", partitions=wanted)],
        forgotten_topics_data=[],
        rack_id="",
    )


def produce(broker: Broker, count: int = 1) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    for _ in range(count):
        producer.produce("orders", partition=0, value=b"v" * 100)
    assert producer.flush(30) == 0


def test_nobody_waits_for_more_bytes_than_an_answer_may_have(
    broker: Broker, client: Client
) -> None:
    """Kafka caps fetch.min.bytes by fetch.max.bytes: the request would wait for 24 days."""
    produce(broker)
    asked = fetch_request([(0, 0)], 2**31 - 1, 2**31 - 1, 50)
    (topic,) = client.ask(asked, FetchResponse, 11).responses
    assert len(topic.partitions[0].records) > 50


def test_a_partition_that_is_fetched_twice_is_answered_once(broker: Broker, client: Client) -> None:
    produce(broker, 2)
    asked = fetch_request([(0, 0), (1, 0), (0, 1)], 0, 1, 1 << 20)
    (topic,) = client.ask(asked, FetchResponse, 11).responses
    assert [each.partition_index for each in topic.partitions] == [0, 1]
    assert topic.partitions[0].records is not None


class Answer:
    """An answer of which a test knows whether somebody holds it."""

    def __init__(self, response: FetchResponse, _version: int) -> None:
        self.records = response.responses[0].partitions[0].records


class Waiting:
    """Topics that have a record of ten bytes, and no news but at the end of a wait."""

    def __init__(self, record: bytes) -> None:
        self._record = record
        self.answers: list[weakref.ref[Answer]] = []
        self.readings: list[weakref.ref[Any]] = []
        self.held: list[int] = []
        self.held_readings: list[int] = []
        self.memory = plenty()
        self.held_bytes: list[int] = []

    def change_counts(self, names: Any) -> dict[str, int]:
        return dict.fromkeys(names, 0)

    async def read_logs(self, read: Any, _owner: Any) -> Answer:
        logs = SimpleNamespace(bounds=lambda *_: fetch.Bounds(0, 1), read=lambda *_: ())
        reading = read.func.__self__
        record = self._record
        # It leads back to no reading: nothing here is for the garbage collector.
        reading._records = lambda *_: record
        answer: Answer = read(logs)
        self.answers.append(weakref.ref(answer))
        self.readings.append(weakref.ref(reading))
        return answer

    async def wait_for_change(self, _seen: Any, _seconds: float) -> bool:
        self.held.append(sum(each() is not None for each in self.answers))
        self.held_bytes.append(self.memory.size)
        self.held_readings.append(sum(each() is not None for each in self.readings))
        return len(self.held) < 3


def fetched(monkeypatch: pytest.MonkeyPatch, topics: Waiting) -> Any:
    monkeypatch.setattr(fetch, "_body", Answer)
    settings = SimpleNamespace(fetch_max_bytes=1 << 20)
    services = SimpleNamespace(topics=topics, settings=settings)
    held = topics.memory = plenty()
    call = SimpleNamespace(
        services=services, version=11, authorize=lambda *_: True, response_memory=held, owner=None
    )
    request = fetch_request([(0, 0)], 60_000, 100, 1 << 20)
    return asyncio.run(fetch._fetch(cast(RequestContext, call), request))


def test_a_fetch_that_waits_for_more_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """11 kB of requests that each waited with 57 MB in hand held 6.6 GB."""
    seconds = iter([0.0, 1.0, 2.0, 3.0, 61.0])
    monkeypatch.setattr(fetch, "monotonic", seconds.__next__)
    topics = Waiting(b"v" * 10)
    assert fetched(monkeypatch, topics).records == b"v" * 10
    assert topics.held == topics.held_readings == topics.held_bytes == [0, 0, 0]
    assert topics.memory.size == 10
    assert len(topics.answers) == 4


def test_an_answer_without_records_is_kept_while_nothing_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is small, and to read again what did not change would cost as much as all else."""
    monkeypatch.setattr(fetch, "monotonic", lambda: 0.0)
    topics = Waiting(b"")
    fetched(monkeypatch, topics)
    assert topics.held == [1, 1, 1]
    assert len(topics.answers) == 3


def test_news_of_a_topic_wake_those_who_wait_for_it(root: str) -> None:
    async def wait() -> None:
        topics = Topics(root)
        seen = topics.change_counts(["a", "b"])
        ours = asyncio.create_task(topics.wait_for_change(seen, 30))
        others = asyncio.create_task(topics.wait_for_change(topics.change_counts(["c"]), 30))
        await asyncio.sleep(0)
        topics._on_changed(["b"])
        assert await ours
        # What came before the wait began ends it at once.
        assert await topics.wait_for_change(seen, 30)
        assert not await topics.wait_for_change(topics.change_counts(["a", "b"]), 0.01)
        assert not others.done()
        others.cancel()
        await asyncio.wait([others])
        assert topics._waiting == {}
        await topics.close()

    asyncio.run(wait())


def test_what_another_look_has_taken_in_is_news_all_the_same(root: str) -> None:
    """ListOffsets looks for new records itself: who waits for them must hear of those as well."""
    for name in ("orders", "other"):
        create_log_topic(root, name, 1)
    logs = TopicLogs(root)
    assert logs.poll() == []
    _, topic = logs.tables.find("orders") or (0, None)
    assert topic is not None
    LogAppender(topic, is_append_time=False).append([NewBatch(0, [b"k"], [b"v"], [0])])
    logs.refresh("orders")
    assert logs.poll() == ["orders"]
    assert logs.poll() == []
    LogAppender(topic, is_append_time=False).append([NewBatch(0, [b"k"], [b"v"], [0])])
    assert logs.poll_topic("orders") == ["orders"]
    delete_topic(root, "other")
    assert logs.poll() == ["other"]
