"""The gateway: a server that answers Kafka's protocol for a root."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.pipeline.client import ProducerSettings, RequestClient
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.acls import Acls
from group_coordinator.pipeline.gateway.apis import VERSIONS
from group_coordinator.pipeline.gateway.brokers import LOOK_EVERY_S, Broker, Brokers, cluster_id
from group_coordinator.pipeline.gateway.call import Services
from group_coordinator.pipeline.gateway.connection import Connection
from group_coordinator.pipeline.gateway.coordinator_link import CoordinatorLink
from group_coordinator.pipeline.gateway.polls import Polls
from group_coordinator.pipeline.gateway.producing import Producing
from group_coordinator.pipeline.gateway.refusals import Refusals
from group_coordinator.pipeline.gateway.security.tls import server_context
from group_coordinator.pipeline.gateway.security.users import Users
from group_coordinator.pipeline.gateway.session import Repeated, Session
from group_coordinator.pipeline.gateway.settings import GatewaySettings
from group_coordinator.pipeline.gateway.topics import Topics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = logging.getLogger(__name__)

_SWEEP_EVERY_S = 5.0
# How long what is in flight may take to end, s.
_PATIENCE_S = 5.0
# Rounds of the loop from a connection's acceptance until it is in the list: a task makes its
# transport, which tells it. From an abort to the socket's end it is one.
_ROUNDS = 3
# Open files that are no clients' connections: tables, logs, and what the runtime needs.
_OWN_FILES = 200
# The most that is read of a socket at once.
_ARRIVAL_BYTES = 1 << 18
# A client that does not end its TLS handshake holds a socket no longer than this, s.
_TLS_HANDSHAKE_S = 10.0


class Address(Failure):
    """An address that cannot be listened on, or is none."""


class Gateway:
    """Answers the connections of one listener. Made and used in one event loop."""

    def __init__(self, services: Services, settings: GatewaySettings) -> None:
        self._services = services
        self._settings = settings
        self._users = Users(settings.users_file) if settings.users_file else None
        self._most = min(settings.max_connections, _open_files() - _OWN_FILES)
        self.polls = Polls()
        self._repeated: dict[tuple[str, str, bytes], Repeated] = {}
        self._arrivals = memoryview(bytearray(_ARRIVAL_BYTES))
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._stopping = False

    async def bind(self, host: str, port: int) -> int:
        """Take an address, port 0 for a free one; returns the port.

        Raises Address, and CertificateError for TLS that cannot be served.
        """
        loop = asyncio.get_running_loop()
        tls = self._settings.tls
        try:
            self._server = await loop.create_server(
                self._connection,
                host,
                port,
                backlog=1024,
                start_serving=False,
                ssl=None if tls is None else server_context(*tls),
                ssl_handshake_timeout=None if tls is None else _TLS_HANDSHAKE_S,
            )
        except (OSError, OverflowError) as error:
            raise Address(f"cannot listen on {host}:{port}: {error}") from error
        return int(self._server.sockets[0].getsockname()[1])

    async def listen(self) -> None:
        """Begin to take connections at the address."""
        assert self._server is not None
        await self._server.start_serving()

    def _connection(self) -> Connection:
        session = Session(self._services, self._users, self._repeated)
        arrivals, memory, lost = self._arrivals, self._services.memory, self._connections.discard
        return Connection(session, arrivals, memory, self.polls, self._take, lost)

    def _take(self, connection: Connection) -> bool:
        if self._stopping:
            return False
        if len(self._connections) >= self._most:
            log.warning(
                "the connection of %s is refused: there are %d, the most that max.connections and "
                "the limit on open files allow",
                connection.host,
                self._most,
            )
            return False
        self._connections.add(connection)
        return True

    async def sweep(self) -> None:
        """Close connections that are not used, until cancelled."""
        idle_s = self._settings.connections_max_idle_ms / 1000
        while True:
            await asyncio.sleep(min(_SWEEP_EVERY_S, idle_s / 4))
            limit = time.monotonic() - idle_s
            for connection in list(self._connections):
                if connection.last_used < limit and not connection.is_busy:
                    connection.close()

    async def stop(self, patience_s: float) -> None:
        """Take no more connections, answer what is in flight for so long, and close."""
        # A client that ends its TLS handshake after this would be in nobody's list.
        self._stopping = True
        await self._stop_listening()
        until = time.monotonic() + patience_s
        for connection in list(self._connections):
            connection.end()
        while self._connections and time.monotonic() < until:
            await asyncio.sleep(0.02)
        for connection in list(self._connections):
            connection.close()
        await _rounds()

    async def _stop_listening(self) -> None:
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        for each in self._server.sockets:
            loop.remove_reader(each.fileno())
        # What is accepted has to be made before the server is closed: asyncio forgets a connection
        # whose server it finds closed, and its client would wait for an answer for ever.
        await _rounds()
        self._server.close()


async def _rounds() -> None:
    """Let the loop make the connections that it has accepted, and end those that are aborted."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


def _open_files() -> int:
    """How many files the process may have open, after it asked for as many as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return 1 << 20 if hard == resource.RLIM_INFINITY else hard


async def _look(brokers: Brokers, acls: Acls) -> None:
    """Keep up which gateways are alive, until cancelled.

    One that does not know which ACLs are in force lets its lease run out: clients are sent to
    others. In a thread of its own: behind clients' requests in the common ones a lease could run
    out.
    """
    with ThreadPoolExecutor(1, "brokers") as thread:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if acls.is_known:
                await asyncio.get_running_loop().run_in_executor(thread, brokers.look)


@asynccontextmanager
async def running_gateway(
    root: str,
    listen: tuple[str, int],
    advertise: tuple[str, int] | None = None,
    settings: GatewaySettings | None = None,
    group: GroupCoordinatorConfig | None = None,
) -> AsyncIterator[Broker]:
    """Serve a root while the block runs; gives the broker as clients reach it.

    `group` are the coordinator's settings, of which super.users and the like are obeyed here too.

    Raises NoTables where no coordinator has run yet, Address, CertificateError and UsersError.
    """
    limits = settings or GatewaySettings()
    broker = group or GroupCoordinatorConfig()
    topics = Topics(root)
    acls = Acls(root, broker)
    # The producer must not block the loop that all connections share.
    producer = ProducerSettings(
        max_block_ms=0, linger_ms=limits.linger_ms, request_key_file=limits.request_key_file
    )
    with RequestClient(root, producer) as client:
        refusals = Refusals(acls)
        link = CoordinatorLink(client, broker.offsets_commit_timeout_ms, refusals.of)
        producing = Producing(
            root, topics, limits.produce_linger_ms, limits.queued_max_request_bytes
        )
        services = Services(
            root, link, topics, producing, acls, refusals, cluster_id(root), VERSIONS, limits
        )
        gateway = Gateway(services, limits)
        host, port = listen
        port = await gateway.bind(host, port)
        services.brokers = brokers = Brokers(root, *(advertise or (host, port)))
        await gateway.listen()
        beside = (
            gateway.polls.follow(),
            topics.follow(),
            acls.follow(),
            refusals.follow(),
            gateway.sweep(),
            _look(brokers, acls),
        )
        tasks = [asyncio.create_task(each) for each in beside]
        try:
            yield brokers.own
        finally:
            # First of all: clients that look for a gateway now are sent to another one.
            await asyncio.to_thread(brokers.stop)
            await gateway.stop(_PATIENCE_S)
            await producing.close()
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            topics.close()
