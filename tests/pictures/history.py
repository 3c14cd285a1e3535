"""Forty minutes of a small shop's consumer groups, decided by the real machine on a virtual clock.

The members are real consumers (`coordinator.consumer`), and their requests become rows of
`requests`. The machine and the sink make the responses, records and events. Only the times are
virtual.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import partial
from itertools import count

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.consumer.consumer_coordinator import ConsumerCoordinator
from group_coordinator.coordinator.consumer.consumer_settings import AutoOffsetReset, parse_settings
from group_coordinator.coordinator.consumer.events import CallAssignor, CommitDone
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.ownership import ClusterState
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import ensure_tables
from group_coordinator.pipeline.topics import LogAppender, NewBatch, create_log_topic
from group_coordinator.schemas.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    RequestEvent,
    Response,
)
from group_coordinator.schemas.records import CoordinatorEvent
from tests.pipeline.decided import Groups
from tests.pipeline.topics.tables import definition_of

MINUTE_MS = 60_000
LASTS_MS = 40 * MINUTE_MS
_TICK_MS = 2_000
# The time between requests and the decision of their batch.
_BATCH_MS = 60
# For each topic: records a second in each partition, partitions, and the minutes of a burst.
_TOPICS = {
    "orders": (6.0, 6, (17, 20)),
    "payments": (3.0, 4, (26, 27)),
    "clicks": (11.0, 8, (9, 12)),
}
_APPEND_MS = 10_000


class Life(Struct, frozen=True):
    """A consumer: the minutes between which it polls, and the records a second that it reads.

    The rate is that of each of its partitions. `closes`: it leaves in order; otherwise it dies.
    `sticks`: from this minute it polls and reads nothing.
    """

    group_id: str
    client_id: str
    host: str
    topics: tuple[str, ...]
    begins: float
    rate: float
    ends: float = math.inf
    closes: bool = True
    sticks: float = math.inf


LIVES = (
    Life("billing", "billing-a", "10.0.1.11", ("orders",), 0.2, 9.0),
    Life("billing", "billing-b", "10.0.1.12", ("orders",), 0.3, 9.0),
    Life("billing", "billing-c", "10.0.1.13", ("orders",), 19.2, 30.0, ends=29.5),
    Life("email-receipts", "mailer", "10.0.2.5", ("payments",), 1, 30.0),
    Life("fraud-detection", "fraud-1", "10.0.3.21", ("orders", "payments"), 2, 4.2),
    Life("fraud-detection", "fraud-2", "10.0.3.22", ("orders", "payments"), 2.1, 2.8),
    Life("loyalty-points", "points", "10.0.4.8", ("payments",), 1.5, 12.0, sticks=31),
    Life("monthly-report", "report", "10.0.5.3", ("orders",), 3, 20.0, ends=24),
    Life("recommendations", "recs-a", "10.0.6.31", ("clicks",), 0.5, 26.0),
    Life("recommendations", "recs-b", "10.0.6.32", ("clicks",), 0.6, 26.0, ends=14, closes=False),
    Life("recommendations", "recs-b", "10.0.6.33", ("clicks",), 16.5, 26.0),
    Life("search-index", "indexer", "10.0.7.2", ("clicks",), 1, 14.0, ends=22, closes=False),
)


class VirtualClock:
    """A clock that shows the time to which it was set, ms."""

    def __init__(self, now: int) -> None:
        self.now = now

    def wall_ms(self) -> int:
        """Return the time of day."""
        return self.now

    def monotonic_s(self) -> float:
        """Return the same, in seconds."""
        return self.now / 1000

    def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += round(seconds * 1000)


class Topics:
    """The topics' tables, to which records are appended as time passes."""

    def __init__(self, root: str, chance: random.Random) -> None:
        self._chance = chance
        self.ends: dict[TopicPartition, int] = {}
        for name, (_, partitions, _) in _TOPICS.items():
            create_log_topic(root, name, partitions, {})
            for number in range(partitions):
                self.ends[TopicPartition(name, number)] = 0
        defined = {name: definition_of(root, name) for name in _TOPICS}
        self._appenders = {
            name: LogAppender(each, is_append_time=False)
            for name, each in defined.items()
            if each is not None
        }

    def append(self, now: int, minute: float) -> None:
        """Append the records since the last call, at most `_APPEND_MS` ago."""
        for name, (rate, partitions, (burst, over)) in _TOPICS.items():
            wave = 1 + 0.35 * math.sin(minute / 4 + partitions)
            times = 3.2 if burst <= minute < over else 1.0
            batches = []
            for number in range(partitions):
                rows = round(
                    rate * wave * times * self._chance.uniform(0.7, 1.3) * _APPEND_MS / 1000
                )
                if rows:
                    batches.append(_batch(number, rows, now))
                    self.ends[TopicPartition(name, number)] += rows
            self._appenders[name].append(batches)


def _batch(number: int, rows: int, now: int) -> NewBatch:
    step = _APPEND_MS / rows
    times = [round(now - _APPEND_MS + step * (place + 1)) for place in range(rows)]
    return NewBatch(number, [None] * rows, [b"{}"] * rows, times)


class Coordinator:
    """A coordinator that decides by the machine that runs in Spark, and writes the decisions."""

    def __init__(self, root: str) -> None:
        self._log = RequestLog(root)
        self._sink = Sink(root, CoordinatorSettings())
        self._groups = Groups(BatchMachine())
        self._batches = count()

    def decide(self, requests: list[RequestEvent], now: int) -> list[Response]:
        """Decide requests, and the timers that are due, in one batch."""
        if requests:
            self._log.append(requests)
        texts = self._groups.due(now)
        for each in requests:
            texts.setdefault(each.group_id, []).append(msgspec.json.encode(each).decode())
        outputs = self._groups.decide(texts, now)
        if outputs:
            self._sink.write(outputs, "history", next(self._batches))
        return [response for output in outputs for response in output.responses]


class Consumer:
    """One consumer through its life."""

    def __init__(self, life: Life, topics: Topics, now: int, ids: Iterator[str]) -> None:
        self._life = life
        self._topics = topics
        self._is_closing = False
        self.is_gone = False
        settings = parse_settings(
            {
                "group.id": life.group_id,
                "client.id": life.client_id,
                "session.timeout.ms": 30_000,
                "auto.commit.interval.ms": 10_000,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
            }
        )
        self._consumer = ConsumerCoordinator(settings, partial(next, ids), lambda: 0.5, now)
        self._consumer.subscribe(life.topics)
        self._consumer.update_topics({name: each[1] for name, each in _TOPICS.items()})

    def step(self, now: int, minute: float) -> list[RequestEvent]:
        """Poll, and return the requests to send; die or leave at its time."""
        consumer = self._consumer
        if minute >= self._life.ends and not self._is_closing:
            if not self._life.closes:
                self.is_gone = True
                return []
            self._is_closing = True
            consumer.close(now)
        while (event := consumer.poll(now)) is not None:
            if isinstance(event, CallAssignor):
                event.run()
            if not isinstance(event, CommitDone):
                consumer.callback_done()
        for partition in consumer.subscription.awaiting_reset():
            consumer.subscription.resolve_reset(partition, AutoOffsetReset.EARLIEST, 0)
        self.is_gone = consumer.closed
        sender = {"client_host": f"/{self._life.host}", "principal": f"User:{self._life.group_id}"}
        return [replace(each, sent_at=now, **sender) for each in consumer.take_requests()]

    def read(self, minute: float) -> None:
        """Read records for the time of a tick."""
        if minute >= self._life.sticks:
            return
        for partition, position in self._consumer.subscription.fetchable().items():
            most = position + round(self._life.rate * _TICK_MS / 1000)
            self._consumer.subscription.seek(partition, min(most, self._topics.ends[partition]))

    def answer(self, now: int, response: Response) -> bool:
        """Handle a response, if it is this consumer's; return whether it is."""
        return self._consumer.response(now, response)


def claim(root: str, now: int) -> None:
    """Claim the partitions for the node."""
    claims = [
        CoordinatorEvent(now, 0, "claimed", 1, partition, "coordinator-1.shop", 9092)
        for partition in range(GroupCoordinatorConfig().offsets_topic_num_partitions)
    ]
    DecisionLog(root).decide(ClusterState(), claims)


def reset(group_id: str, topic: str, partitions: int, now: int) -> RequestEvent:
    """Return an operator's reset of a topic's offsets to the beginning."""
    places = tuple(OffsetCommitPartition(number, 0) for number in range(partitions))
    return RequestEvent(
        f"reset-{group_id}",
        group_id,
        "offset_commit",
        client_id="group-coordinator",
        client_host="/10.0.9.4",
        principal="User:ana",
        sent_at=now,
        offset_commit=OffsetCommitRequest(topics=(OffsetCommitTopic(topic, places),)),
    )


def write_history(root: str, end: int) -> None:
    """Fill a root with the 40 minutes before `end`, ms."""
    ensure_tables(root)
    claim(root, end - LASTS_MS)
    time = VirtualClock(end - LASTS_MS)
    with clock.use(time):
        _live(root, time, end)


def _live(root: str, time: VirtualClock, end: int) -> None:
    begin = time.now
    chance = random.Random(7)
    ids = (f"{chance.getrandbits(32):08x}-{number}" for number in count(1))
    topics, coordinator = Topics(root, chance), Coordinator(root)
    unborn = sorted(LIVES, key=lambda life: -life.begins)
    consumers: list[Consumer] = []
    for now in range(begin, end - _TICK_MS, _TICK_MS):
        time.now = now
        minute = (now - begin) / MINUTE_MS
        while unborn and unborn[-1].begins <= minute:
            consumers.append(Consumer(unborn.pop(), topics, now, ids))
        if (now - begin) % _APPEND_MS == 0 and now > begin:
            topics.append(now, minute)
        for each in consumers:
            each.read(minute)
        requests = [reset("monthly-report", "orders", 6, now)] if minute == 26 else []
        while True:
            requests += [one for each in consumers for one in each.step(time.now, minute)]
            consumers = [each for each in consumers if not each.is_gone]
            time.now += _BATCH_MS
            responses = coordinator.decide(requests, time.now)
            for response in responses:
                any(each.answer(time.now, response) for each in consumers)
            if not responses:
                break
            requests = []
