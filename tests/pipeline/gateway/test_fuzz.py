"""A gateway among clients that nobody should have goes on serving the others."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kafka.protocol.consumer.group import HeartbeatRequest, HeartbeatResponse

from group_coordinator.pipeline.gateway.brokers import Broker
from tests.ends import check_runs
from tests.pipeline.gateway.fuzzing import Fuzz
from tests.pipeline.gateway.raw import Client, connected
from tests.pipeline.gateway.running import coordinator, gateway
from tests.pipeline.gateway.test_limits import become_member
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

GROUP = "undisturbed"


def heartbeats(client: Client, member_id: str) -> Callable[[], None]:
    """Sends a heartbeat when the last one is answered, without waiting for its answer."""
    request = HeartbeatRequest(
        group_id=GROUP, generation_id=1, member_id=member_id, group_instance_id=None
    )
    client.send(request, 4)

    def beat() -> None:
        client.socket.setblocking(False)
        try:
            client.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        finally:
            client.socket.settimeout(30)
        assert client.receive(HeartbeatResponse, 4)[1].error_code == 0
        client.send(request, 4)

    return beat


def test_bad_clients_disturb_nobody(root: str, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        coordinator(root),
        gateway(root) as broker,
        connected(broker) as client,
    ):
        beat = heartbeats(client, become_member(client, GROUP))
        fuzz = Fuzz(broker, seed=1, clients=150)
        fuzz.run(1_500, beat)
    assert fuzz.counts["answers"]
    assert fuzz.counts["closed"]
    assert [record.exc_text for record in caplog.records if record.exc_info] == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_million_frames(root: str, tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    with (
        coordinator(root),
        gateway_process(root, log) as (process, broker),
        connected(broker) as client,
    ):
        beat = heartbeats(client, become_member(client, GROUP))
        # What is made once, for each API and version, is no growth.
        Fuzz(broker, seed=2, clients=100).run(50_000, beat)
        before_mb = resident_mb(process.pid)
        fuzz, began = Fuzz(broker, seed=3, clients=100), time.monotonic()
        fuzz.run(1_000_000, beat)
        taken_s = time.monotonic() - began
        after_mb = resident_mb(process.pid)
        check_runs(process.poll(), log)
    print(f"{taken_s:.0f} s, {before_mb} to {after_mb} MB, {dict(fuzz.counts)}")
    assert after_mb - before_mb < 100
    assert "Traceback" not in log.read_text()


@contextmanager
def gateway_process(root: str, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], Broker]]:
    """A gateway as its command runs it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "group_coordinator", "gateway", "--root", root]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{port}"], stdout=output, stderr=output
        )
    try:

        def answers() -> bool:
            check_runs(process.poll(), log)
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return True
            return False

        wait_until("the gateway takes a connection", answers)
        yield process, Broker(0, "127.0.0.1", port)
    finally:
        process.terminate()
        process.wait(30)


def resident_mb(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20
