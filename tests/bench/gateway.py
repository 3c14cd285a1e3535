"""Kafka's protocol through a gateway: answer time, members held, and records consumed.

Answer time: the load of `answer` in turns to one coordinator: written as rows, which are timed from
their commit as in `answer`; written by a Python program's client, and sent through sockets, which
are both timed from the program's call. Members held: as many as get every heartbeat of 3 s answered
before the next one is due, with no error, at sessions of 45 s; there are 10,000 more at a time
until they are not. They share a thousand connections. Consumed: the rows of a Delta table of 100
bytes each, by one confluent-kafka consumer, once they are indexed. Produced: as many such records,
by one confluent-kafka producer with acks=all and its defaults; the time of an acknowledgement is
that of one record every 20 ms.

The gateway's CPU a request is that of its process during the members' heartbeats. Where the driver,
which is one thread, reaches its core, the report says so: the figure is then a lower bound.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import pyarrow as pa
from deltalake import write_deltalake
from msgspec import Struct

from group_coordinator.pipeline.client import RequestClient
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.topics import create_table_topic
from tests.bench.held import MOST, HeldLoad, hold
from tests.bench.paced import (
    GROUPS,
    INTERVAL_S,
    MEMBERS,
    p50_and_p99,
    pace,
    pace_client,
)
from tests.bench.report import Aim, Column, Report
from tests.bench.running import COORDINATOR, WARM_UP_S, running, serving
from tests.bench.socket_fleet import SocketFleet
from tests.support.broker import HOST, broker
from tests.support.fleet import LONGEST_SESSION_MS, Fleet, groups_of
from tests.support.kafka_libs import ADVICE, kafka_libs
from tests.support.rebalance import form
from tests.support.wire import await_coordinator

SESSION_MS = 45_000
RECORDS = 1_000_000
RECORD_BYTES = 100
_TURN_S = 20.0
_ROUNDS = 3
_TOPIC, _PRODUCED, _SINGLE = "records", "produced", "single"
_ACKS = 200
_ACK_EVERY_S = 0.02
_IDLE_S = 60.0
_BATCH_ROWS = 100_000

ROWS, CLIENT, GATEWAY, KAFKA = "rows, from their commit", "client, from send", "gateway", "kafka"


class Figures(Struct):
    """The figures of a client's way to a coordinator. -1: not measured.

    `held_limit`: end of the search.
    """

    machine: Annotated[str, Column("to the coordinator by")]
    p50_ms: Annotated[float, Column("p50 ms", ".0f")]
    p99_ms: Annotated[float, Column("p99 ms", ".0f")]
    held: Annotated[int, Column("members held", ",.0f", absent=-1)] = -1
    held_per_s: Annotated[float, Column("heartbeats/s", ",.0f", absent=-1)] = -1.0
    held_p99_ms: Annotated[float, Column("their p99 ms", ".0f", absent=-1)] = -1.0
    held_limit: Annotated[str, Column("limit")] = ""
    cpu_us: Annotated[float, Column("server's CPU a heartbeat, us", ".0f", absent=-1)] = -1.0
    records_per_s: Annotated[float, Column("records consumed/s", ",.0f", absent=-1)] = -1.0
    mb_per_s: Annotated[float, Column("MB/s", ".1f", absent=-1)] = -1.0
    produced_per_s: Annotated[float, Column("records produced/s", ",.0f", absent=-1)] = -1.0
    ack_p50_ms: Annotated[float, Column("ack p50 ms", ".1f", absent=-1)] = -1.0


class GatewayReport(Report):
    """Three ways to one coordinator; `kafka` is None where no jars of it are named."""

    written: Figures
    client: Figures
    gateway: Figures
    kafka: Figures | None

    def rows(self) -> list[Figures]:
        """Return the ways that were measured."""
        ours = [self.written, self.client, self.gateway]
        return [*ours, *([] if self.kafka is None else [self.kafka])]

    def aims(self) -> list[Aim]:
        """Through the socket nearly as soon; half as many records a second as Kafka."""
        aims = [
            Aim("p50 over that of rows", "ms", 15, self.gateway.p50_ms - self.written.p50_ms),
            Aim("p50 over that of a client", "ms", 15, self.gateway.p50_ms - self.client.p50_ms),
            Aim("CPU of the gateway a heartbeat", "us", 60, self.gateway.cpu_us),
        ]
        if self.kafka is not None:
            share = self.gateway.records_per_s / self.kafka.records_per_s
            aims.append(Aim("records/s over Kafka's", "", 0.5, share, most=False))
            held = self.gateway.held / self.kafka.held
            aims.append(Aim("members held over Kafka's", "", 1, held, most=False))
        return aims


class Load(Struct):
    """The size of the load; the command's defaults are those of a full run."""

    warm_up: float = WARM_UP_S
    seconds: float = _TURN_S
    rounds: int = _ROUNDS
    records: int = RECORDS
    most: int = MOST


def bench_gateway(load: Load, libs: Path | None, say: Callable[[str], None]) -> GatewayReport:
    """Measure all of it; `say` hears of progress. Raises Failure."""
    kafka = None
    if libs is None:
        say(ADVICE)
    else:
        with broker(kafka_libs(libs, say)) as node:
            await_coordinator(node, "gateway-0")
            kafka = _kafka(node.port, node.pid, load, say)
    with running(COORDINATOR) as (process, root), serving(root) as (port, pid):
        fleet = Fleet(root, GROUPS, MEMBERS, "rows", LONGEST_SESSION_MS)
        form(fleet)
        with SocketFleet(HOST, port) as sockets, RequestClient(root) as client:
            sockets.grow(groups_of("gateway", range(GROUPS), MEMBERS, LONGEST_SESSION_MS))
            by_rows: list[float] = []
            by_client: list[float] = []
            by_gateway: list[float] = []
            say(f"gateway: warm-up, {load.warm_up:.0f} s")
            pace(fleet, load.warm_up / 2, process)
            _beat(sockets, load.warm_up / 2, INTERVAL_S)
            for number in range(load.rounds):
                say(f"gateway: round {number + 1} of {load.rounds}")
                by_rows += pace(fleet, load.seconds, process)[0]
                by_client += pace_client(client, fleet.members, load.seconds, process)
                by_gateway += _beat(sockets, load.seconds, INTERVAL_S)
        written = Figures(ROWS, *p50_and_p99(by_rows, ROWS))
        sent = Figures(CLIENT, *p50_and_p99(by_client, CLIENT))
        through = Figures(GATEWAY, *p50_and_p99(by_gateway, GATEWAY))
        consume_table(through, root, port, load.records, say)
        produce(through, port, load.records, say)
        _held(through, port, pid, load, say)
    return GatewayReport(written, sent, through, kafka)


def _kafka(port: int, pid: int, load: Load, say: Callable[[str], None]) -> Figures:
    with SocketFleet(HOST, port) as sockets:
        sockets.grow(groups_of("gateway", range(GROUPS), MEMBERS, SESSION_MS))
        say(f"gateway: kafka, {load.seconds:.0f} s")
        _beat(sockets, load.seconds, INTERVAL_S)
        found = Figures(KAFKA, *p50_and_p99(_beat(sockets, load.seconds, INTERVAL_S), KAFKA))
    produce(found, port, load.records, say)
    _consumed(found, port, load.records, _PRODUCED)
    _held(found, port, pid, load, say)
    return found


# --- members ------------------------------------------------------------------------------------


def _beat(sockets: SocketFleet, seconds: float, interval_s: float) -> list[float]:
    found = sockets.beat(seconds, interval_s)
    if found.errors:
        raise Failure(f"{found.errors} heartbeats were answered with an error")
    return found.times


def _held(found: Figures, port: int, pid: int, load: Load, say: Callable[[str], None]) -> None:
    """Find out how many members are held, and keep the figures."""
    asked = HeldLoad(most=load.most, seconds=load.seconds)
    held = hold(found.machine, port, pid, asked, say)
    found.held, found.held_per_s, found.held_p99_ms = held.members, held.per_second, held.p99_ms
    found.cpu_us, found.held_limit = held.gateway_us, held.limit


# --- records ------------------------------------------------------------------------------------


def consume_table(
    found: Figures, root: str, port: int, records: int, say: Callable[[str], None]
) -> None:
    """Make a table a topic of the root, and consume it through the gateway. Raises Failure."""
    say(f"gateway: a table of {records} rows")
    with tempfile.TemporaryDirectory(prefix="group-coordinator-table-") as folder:
        for first in range(0, records, _BATCH_ROWS):
            count = min(_BATCH_ROWS, records - first)
            rows = pa.table(
                {
                    "partition": pa.array([0] * count, pa.int32()),
                    "value": [_value(first + n) for n in range(count)],
                }
            )
            write_deltalake(folder, rows, mode="append")
        create_table_topic(root, _TOPIC, 1, folder, partition="partition", value="value")
        _consumed(found, port, records, _TOPIC)


def produce(found: Figures, port: int, records: int, say: Callable[[str], None]) -> None:
    """Produce records to a topic of one partition that is made for them. Raises Failure."""
    say(f"gateway: {found.machine}, {records} records are produced")
    kafka = _confluent()
    address = {"bootstrap.servers": f"{HOST}:{port}"}
    _create(_PRODUCED, address)
    producer = kafka.Producer({**address, "queue.buffering.max.messages": 2_000_000})
    began = time.perf_counter()
    for number in range(records):
        producer.produce(_PRODUCED, _value(number), partition=0)
        producer.poll(0)
    if producer.flush(_IDLE_S):
        raise Failure("not all records were acknowledged")
    found.produced_per_s = records / (time.perf_counter() - began)
    found.ack_p50_ms = 1000 * median(_acknowledged(producer, address))


def _create(topic: str, address: dict[str, str]) -> None:
    """Make a topic of one partition."""
    admin = import_module("confluent_kafka.admin")
    client = admin.AdminClient(address)
    client.create_topics([admin.NewTopic(topic, 1)])[topic].result(_IDLE_S)


def _acknowledged(producer: Any, address: dict[str, str]) -> list[float]:
    """Return the times until single records are acknowledged, s."""
    _create(_SINGLE, address)
    times: list[float] = []
    for number in range(_ACKS):
        sent = time.perf_counter()

        def told(error: Any, _message: Any, sent: float = sent) -> None:
            if error is not None:
                raise Failure(f"a record was not written: {error}")
            times.append(time.perf_counter() - sent)

        producer.produce(_SINGLE, _value(number), partition=0, on_delivery=told)
        while time.perf_counter() < sent + _ACK_EVERY_S:
            producer.poll(0.001)
    if producer.flush(_IDLE_S):
        raise Failure("not all records were acknowledged")
    return times


def _value(number: int) -> bytes:
    return f"{number:0{RECORD_BYTES}d}".encode()


def _confluent() -> Any:
    try:
        return import_module("confluent_kafka")
    except ImportError as error:
        raise Failure("bench gateway needs confluent-kafka: pip install -e '.[dev]'") from error


def _end(consumer: Any, partition: Any) -> int:
    """Return the offset after a partition's last record; 0 while the topic is not known yet."""
    try:
        return int(consumer.get_watermark_offsets(partition, _IDLE_S)[1])
    except _confluent().KafkaException:
        return 0


def _consumed(found: Figures, port: int, records: int, topic: str) -> None:
    """Consume all records of a topic by one consumer, from when all are there."""
    kafka = _confluent()
    consumer = kafka.Consumer(
        {
            "bootstrap.servers": f"{HOST}:{port}",
            "group.id": "bench",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    partition = kafka.TopicPartition(topic, 0, 0)
    limit = time.monotonic() + _IDLE_S
    while _end(consumer, partition) < records:
        if time.monotonic() > limit:
            raise Failure(f"{topic} does not have its {records} records")
        time.sleep(0.05)
    consumer.assign([partition])
    taken, began, size = 0, time.perf_counter(), 0
    try:
        while taken < records:
            messages = consumer.consume(min(10_000, records - taken), _IDLE_S)
            if not messages:
                raise Failure(f"{taken} of {records} records came")
            for each in messages:
                if each.error() is None:
                    taken += 1
                    size += len(each.value())
    finally:
        consumer.close()
    seconds = time.perf_counter() - began
    found.records_per_s, found.mb_per_s = taken / seconds, size / 1e6 / seconds
