"""Producers and a gateway that write to one topic at once; one of them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import confluent_kafka
import pytest

from group_coordinator import Producer
from tests.ends import check_end
from tests.pipeline.client.producing_process import PARTITIONS
from tests.pipeline.client.test_record_producer import LIMIT_S, values_of
from tests.pipeline.gateway.running import gateway
from tests.pipeline.topics.logs import make

TOP = Path(__file__).parents[3]
ENDLESS, COUNT, BEFORE_KILL = 1_000_000, 150, 60


def starts(root: str, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.pipeline.client.producing_process"]
    return subprocess.Popen(
        [*command, root, name, str(count)], cwd=TOP, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.full
def test_nothing_acknowledged_is_lost_when_one_of_them_is_killed(root: str) -> None:
    make(root, PARTITIONS)
    acknowledged: dict[str, list[tuple[int, int, int]]] = defaultdict(list)

    def take(name: str, line: str) -> None:
        number, partition, offset = map(int, line.split())
        acknowledged[name].append((number, partition, offset))

    with gateway(root) as broker, starts(root, "killed", ENDLESS) as killed:
        with starts(root, "other", COUNT) as other:
            client = confluent_kafka.Producer(
                {
                    "bootstrap.servers": f"{broker.host}:{broker.port}",
                    "enable.idempotence": True,
                    "linger.ms": 1,
                }
            )

            def told(error: object, message: confluent_kafka.Message) -> None:
                assert error is None
                number = int(message.value().rpartition(b"-")[2])
                acknowledged["client"].append((number, message.partition(), message.offset()))

            assert killed.stdout is not None and other.stdout is not None
            for number in range(COUNT):
                client.produce(
                    "t", b"client-%d" % number, partition=number % PARTITIONS, on_delivery=told
                )
                client.poll(0)
                if number < BEFORE_KILL:
                    take("killed", killed.stdout.readline())
            os.kill(killed.pid, signal.SIGKILL)
            for line in killed.stdout:
                if line.endswith("\n"):
                    take("killed", line)
            assert client.flush(LIMIT_S) == 0
            for line in other.stdout:
                take("other", line)
        check_end(other.returncode, "")
    assert killed.returncode == -signal.SIGKILL
    assert len(acknowledged["other"]) == len(acknowledged["client"]) == COUNT
    for partition in range(PARTITIONS):
        # Offsets are dense, or `values_of` says so.
        values = [value or b"" for value in values_of(root, partition)]
        for name, found in acknowledged.items():
            for number, where, offset in found:
                if where == partition:
                    assert values[offset] == f"{name}-{number}".encode()
            numbers = [
                int(value.rpartition(b"-")[2])
                for value in values
                if value.startswith(name.encode())
            ]
            expected = range(partition, partition + PARTITIONS * len(numbers), PARTITIONS)
            assert numbers == list(expected), "each once, in order, and none left out"


@pytest.mark.full
def test_keys_go_where_a_c_client_sends_them(root: str) -> None:
    make(root, 7)
    keys = [bytes([number]) * (number % 11) for number in range(100)]
    with gateway(root) as broker:
        client = confluent_kafka.Producer(
            {
                "bootstrap.servers": f"{broker.host}:{broker.port}",
                "partitioner": "murmur2",
            }
        )
        theirs: dict[bytes, int] = {}
        for key in keys:
            client.produce(
                "t",
                key,
                key,
                on_delivery=lambda _, message: theirs.update({message.key(): message.partition()}),
            )
        assert client.flush(LIMIT_S) == 0
    with Producer(root) as producer:
        ours = {key: producer.send("t", b"", key) for key in keys}
        assert {key: sent.result(LIMIT_S).partition for key, sent in ours.items()} == theirs
