"""Four hundred connections that repeat ListGroups, beside another user's."""

from __future__ import annotations

import multiprocessing
import select
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import msgspec
import pytest
from kafka.protocol.admin.groups import ListGroupsRequest
from kafka.protocol.consumer.fetch import FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from group_coordinator.pipeline.cli.gateway import tune_interpreter
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.pipeline.tables.store import ensure_tables
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from tests.pipeline.gateway.raw import Client, connected
from tests.pipeline.gateway.running import gateway
from tests.pipeline.gateway.test_long_requests import fetch_request
from tests.pipeline.offsets_log import Log, commit
from tests.waiting import LIMIT_S

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
CONNECTIONS, GROUPS, PAIRS = 400, 10_000, 5
# How long requests are timed, s, and the time between two of them.
STRETCH_S, EVERY_S = 10.0, 0.02
# The gateway, its flood and the other user have no interpreter in common.
_PROCESSES = multiprocessing.get_context("spawn")


def serve(root: str, told: Any, stop: Any) -> None:
    """Serve a root until the process is told to stop, with the command's settings of Python."""
    tune_interpreter()
    with gateway(root) as broker:
        told.send(broker)
        stop.recv()


def repeat(broker: Broker, count: int, stop: Any) -> None:
    """Send ListGroups by many connections, each again as soon as it is answered."""
    request = ListGroupsRequest(states_filter=[], types_filter=[])
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(broker)) for _ in range(count)]
        poll = select.epoll()
        by_fd = {client.socket.fileno(): (client.socket, Answers()) for client in clients}
        frame = framed(request)
        for fd, (sock, _) in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            sock.sendall(frame)
        buffer = bytearray(1 << 20)
        while not stop.poll():
            for fd, _ in poll.poll(0.1):
                sock, answers = by_fd[fd]
                size = sock.recv_into(buffer)
                assert size, "the flood's connection was closed"
                if answers.take(buffer, size):
                    sock.sendall(frame)


class Answers:
    """How much of an answer is still to come."""

    def __init__(self) -> None:
        self.left = 0

    def take(self, buffer: bytearray, size: int) -> bool:
        """Whether the answer is whole."""
        if not self.left:
            self.left = 4 + int.from_bytes(buffer[:4], "big")
        self.left -= size
        return not self.left


def framed(request: Any) -> bytes:
    request.API_VERSION = 4
    request.with_header(correlation_id=1, client_id="eve")
    found: bytes = request.encode(header=True, framed=True)
    return found


@contextmanager
def process(target: Any, *arguments: Any) -> Iterator[Any]:
    stop, ours = _PROCESSES.Pipe(duplex=False)
    running = _PROCESSES.Process(target=target, args=(*arguments, stop))
    running.start()
    try:
        yield running
        assert running.is_alive()
    finally:
        ours.send(None)
        running.join(LIMIT_S)


def p99_of(client: Client, fetching: Client) -> tuple[float, int]:
    """The p99 of Metadata, ms, and how many fetches were answered: one that is closed raises."""
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    times, fetches = [], 0
    until = time.monotonic() + STRETCH_S
    while time.monotonic() < until:
        began = time.perf_counter()
        client.ask(request, MetadataResponse, 8)
        times.append(1_000 * (time.perf_counter() - began))
        if not fetching.sent:
            fetching.send(fetch_request([(0, 0)], 200, 1, 1 << 20), 11)
        elif select.select([fetching.socket], [], [], 0)[0]:
            fetching.receive(FetchResponse, 11)
            fetches += 1
            fetching.send(fetch_request([(0, 0)], 200, 1, 1 << 20), 11)
        time.sleep(EVERY_S)
    return quantiles(times, n=100)[-1], fetches


def test_who_repeats_list_groups_closes_nobody_s_fetches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, now = str(tmp_path), clock_ms()
    ensure_tables(root)
    create_topic(root, "orders", 4)
    rows = [commit(f"a-group-of-many-{number}", 7, now) for number in range(GROUPS)]
    Log(root).append_rows(
        [msgspec.structs.replace(row, partition=0, log_offset=at) for at, row in enumerate(rows)]
    )
    told, ours = _PROCESSES.Pipe()
    pairs = []
    with process(serve, root, ours):
        broker = told.recv()
        with connected(broker) as client, connected(broker) as fetching:
            p99_of(client, fetching)
            for _ in range(PAIRS):
                alone, fetches_alone = p99_of(client, fetching)
                with process(repeat, broker, CONNECTIONS):
                    time.sleep(2)
                    beside, fetches = p99_of(client, fetching)
                pairs.append((alone, beside, fetches_alone, fetches))
    with capsys.disabled():
        for alone, beside, fetches_alone, fetches in pairs:
            print(
                f"\np99 of Metadata: {alone:.1f} ms alone, {beside:.1f} ms beside the flood; "
                f"fetches: {fetches_alone}, {fetches}",
                end="",
            )
        print(f"\nmedian of the pairs: {median(beside / alone for alone, beside, *_ in pairs):.1f}")
    assert all(fetches for *_, fetches in pairs)
