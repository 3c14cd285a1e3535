"""However a program ends, no thread of this project runs at the end of the interpreter."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from subprocess import PIPE, STDOUT

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from group_coordinator.pipeline.client import ProducerSettings, RequestProducer
from group_coordinator.pipeline.delta.checkpoint import CHECKPOINT_EVERY
from group_coordinator.pipeline.topics import create_table_topic
from tests.ends import check_end
from tests.pipeline.ending import REQUESTS, heartbeat
from tests.pipeline.small import SmallCoordinator

pytestmark = pytest.mark.full

# The number of programs before a release; under other load 200 gateways took twenty minutes.
OFTEN = pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])
TIMES = [6, OFTEN]
BROKER = {"group.initial.rebalance.delay.ms": 0}


def ends(kind: str, root: str, times: int) -> list[str]:
    """Return the exit code of each program of this kind, and its threads at the end."""
    command = [sys.executable, "-m", "tests.pipeline.ending", kind, root, str(times)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3_000)
    check_end(done.returncode, done.stderr)
    return done.stdout.splitlines()


@pytest.mark.parametrize("times", TIMES)
def test_a_program_that_ends_within_a_checkpoint_is_not_ended_by_a_signal(
    root: str, times: int
) -> None:
    with RequestProducer(root, ProducerSettings(linger_ms=0)) as producer:
        for number in range(CHECKPOINT_EVERY - 3):
            producer.send(heartbeat(number)).result()
    assert ends("in_checkpoint", root, times) == ["0 MainThread"] * times


@pytest.mark.parametrize("times", TIMES)
def test_requests_that_wait_when_a_program_ends_are_written(root: str, times: int) -> None:
    assert ends("unwritten", root, times) == ["0 MainThread"] * times
    for number in range(times):
        assert DeltaTable(f"{root}-{number}/requests").to_pyarrow_table().num_rows == REQUESTS


@pytest.fixture
def topic(root: str) -> Iterator[str]:
    """Yield a root with a coordinator, and a topic with a file that takes a while to read."""
    numbers = pa.array(range(300_000), pa.int64())
    write_deltalake(f"{root}/rows", pa.table({"n": numbers, "text": pc.cast(numbers, pa.string())}))
    create_table_topic(root, "t", 6, f"{root}/rows", key="text")
    running = SmallCoordinator(root, BROKER)
    yield root
    running.stop()


@pytest.mark.parametrize(("kind", "code"), [("reading", 0), ("failing", 1), ("joining", 0)])
@pytest.mark.parametrize("times", TIMES)
def test_a_member_that_is_not_closed_ends_with_its_program(
    topic: str, kind: str, code: int, times: int
) -> None:
    assert ends(kind, topic, times) == [f"{code} MainThread"] * times


@pytest.mark.parametrize("times", [1, OFTEN])
@pytest.mark.parametrize("verb", ["gateway", "metrics", "ui"])
def test_a_server_that_is_ended_while_it_answers_is_not_ended_by_a_signal(
    topic: str, verb: str, times: int
) -> None:
    for _ in range(times):
        command = [
            sys.executable,
            "-m",
            "group_coordinator",
            verb,
            "--root",
            topic,
            "--listen",
            "127.0.0.1:0",
        ]
        with subprocess.Popen(command, stdout=PIPE, stderr=STDOUT, text=True) as server:
            assert server.stdout is not None
            ports = (re.search(r"127\.0\.0\.1:(\d+)", line) for line in server.stdout)
            port = next(int(found[1]) for found in ports if found is not None)
            with socket.create_connection(("127.0.0.1", port)) as client:
                # The threads that read the tables for the response are busy when the signal comes.
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                server.send_signal(signal.SIGTERM)
                said = server.stdout.read()
        check_end(server.returncode, said)
