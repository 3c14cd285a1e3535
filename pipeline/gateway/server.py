"""The gateway: a server that speaks Kafka's protocol for a root."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.pipeline.client import ProducerSettings, RequestClient
from group_coordinator.pipeline.gateway.acceptor import (
    Acceptor,
    ConnectionQuotas,
    RateLimitedLogger,
    TooManyConnections,
    bind,
    client_speaks,
    server_context,
)
from group_coordinator.pipeline.gateway.acl_cache import AclCache
from group_coordinator.pipeline.gateway.brokers import REFRESH_EVERY_S, Brokers, cluster_id
from group_coordinator.pipeline.gateway.connection import AUTHENTICATION_LIMIT_S, Connection
from group_coordinator.pipeline.gateway.coordinator_link import CoordinatorLink
from group_coordinator.pipeline.gateway.log_writers import LogWriters
from group_coordinator.pipeline.gateway.receiving import LoopTicks
from group_coordinator.pipeline.gateway.refusals import RefusalCounts, Refusals
from group_coordinator.pipeline.gateway.request_context import Services
from group_coordinator.pipeline.gateway.session import Session
from group_coordinator.pipeline.gateway.topic_logs import Topics
from group_coordinator.pipeline.gateway.users import Users
from group_coordinator.pipeline.gateway_settings import Endpoint, GatewaySettings, Listener

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import AsyncIterator, Sequence

log = logging.getLogger(__name__)

_SWEEP_EVERY_S = 5.0
# The time limit for requests in flight when the gateway stops, s.
_STOP_TIMEOUT_S = 5.0
# Iterations of the loop from the acceptance of a connection to `connection_made`: a task creates
# the transport, which calls it. From an abort to the end of the socket it is one.
_ROUNDS = 3
# Open files that are not client connections: tables, logs, and those of the runtime.
_OWN_FILES = 200
# The size of one read from a socket, bytes.
_READ_BYTES = 1 << 18


class _ListenerSocket(NamedTuple):
    listener: Listener
    listening: Acceptor


class Gateway:
    """The connections of all listeners. Created and used in one event loop."""

    def __init__(self, services: Services, settings: GatewaySettings) -> None:
        """Read the users and the certificate. Raises UsersError and CertificateError."""
        self._services = services
        self._settings = settings
        self._users = Users(settings.users_file) if settings.users_file else None
        tls = settings.tls
        self._tls = None if tls is None else server_context(*tls)
        self._logger = RateLimitedLogger()
        self._files = _open_files()
        self._most = max(1, min(settings.max_connections, self._files - _OWN_FILES))
        self._quotas = ConnectionQuotas(
            self._most, settings.max_connections_per_ip, services.memory
        )
        self.ticks = LoopTicks()
        self._read_buffer = memoryview(bytearray(_READ_BYTES))
        # In the order in which they were accepted.
        self._connections: dict[Connection, None] = {}
        # The tasks that set up accepted sockets. With TLS they wait for the client.
        self._making: set[asyncio.Task[None]] = set()
        self._listeners: list[_ListenerSocket] = []

    async def bind(self, listener: Listener) -> Endpoint:
        """Bind a listener's address; return the advertised one. Raises CannotListen.

        Port 0 selects a free port.
        """
        host, port = listener.address
        listening = await bind(host, port, self._logger)
        self._listeners.append(_ListenerSocket(listener, listening))
        return listener.advertised or Endpoint(host, listening.port)

    def listen(self) -> None:
        """Start to accept connections on all listeners."""
        log.info(
            "gateway: at most %d connections: max.connections is %d, the limit on open files %d, "
            "of which %d are reserved for the gateway itself",
            self._most,
            self._settings.max_connections,
            self._files,
            _OWN_FILES,
        )
        for each in self._listeners:
            each.listening.begin(partial(self._accepted, each))

    def _accepted(self, served: _ListenerSocket, accepted: socket.socket, host: str) -> None:
        try:
            address = self._quotas.add(host)
        except TooManyConnections as error:
            accepted.close()
            self._logger.log(logging.WARNING, "the connection of %s is refused: %s", host, error)
            return
        listener = served.listener
        users = self._users if listener.requires_authentication else None
        session = Session(self._services, listener.name, users, host)
        connection = Connection(
            session, self._read_buffer, address, self.ticks, self._logger, self._leave
        )
        self._connections[connection] = None
        tls = self._tls if listener.has_tls else None
        making = asyncio.create_task(self._make(connection, accepted, tls))
        self._making.add(making)
        making.add_done_callback(self._making.discard)

    async def _make(
        self, connection: Connection, accepted: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        """Attach a socket to its connection, after the TLS handshake if there is one."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None if tls is None else AUTHENTICATION_LIMIT_S):
                if tls is not None:
                    await client_speaks(accepted)
                await loop.connect_accepted_socket(lambda: connection, accepted, ssl=tls)
        # The client does not speak TLS, is silent, or has disconnected.
        except OSError as error:
            line = "the connection of %s is closed: no TLS handshake: %s"
            why = str(error) or type(error).__name__
            self._logger.log(logging.INFO, line, connection.address.host, why)
        finally:
            if not connection.is_made:
                accepted.close()
                self._leave(connection)

    def _leave(self, connection: Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._quotas.remove(connection.address)

    def close(self) -> None:
        """Close the listening sockets."""
        for each in self._listeners:
            each.listening.close()

    async def sweep(self) -> None:
        """Close idle connections, until cancelled."""
        idle_s = self._settings.connections_max_idle_ms / 1000
        while True:
            await asyncio.sleep(min(_SWEEP_EVERY_S, idle_s / 4))
            limit = time.monotonic() - idle_s
            for connection in list(self._connections):
                if connection.last_used < limit and not connection.is_busy:
                    connection.close()

    async def stop(self, timeout_s: float) -> None:
        """Stop listening, wait `timeout_s` seconds for requests in flight, and close all."""
        self.close()
        # Accepted connections are set up, except those that wait for a TLS handshake.
        await _rounds()
        for making in self._making:
            making.cancel()
        await asyncio.gather(*self._making, return_exceptions=True)
        until = time.monotonic() + timeout_s
        for connection in list(self._connections):
            connection.drain()
        while self._connections and time.monotonic() < until:
            await asyncio.sleep(0.02)
        for connection in list(self._connections):
            connection.close()
        await _rounds()


async def _rounds() -> None:
    """Wait until the loop has set up accepted connections, and ended aborted ones."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


def _open_files() -> int:
    """Raise the soft limit on open files to the hard limit, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return 1 << 20 if hard == resource.RLIM_INFINITY else hard


async def _refresh_brokers(brokers: Brokers, acls: AclCache, thread: ThreadPoolExecutor) -> None:
    """Renew the lease and poll the other gateways, until cancelled.

    A gateway that does not know the ACLs lets its lease expire, so that clients are sent to others.
    `thread` does nothing else: the lease could expire while it waits for other work.
    """
    while True:
        await asyncio.sleep(REFRESH_EVERY_S)
        if acls.is_known:
            await asyncio.get_running_loop().run_in_executor(thread, brokers.refresh)


@asynccontextmanager
async def running_gateway(
    root: str,
    listeners: Sequence[Listener],
    settings: GatewaySettings | None = None,
    group: GroupCoordinatorConfig | None = None,
    refused: RefusalCounts | None = None,
) -> AsyncIterator[Brokers]:
    """Serve a root for the block; yield the live gateways, including this one.

    `group` has the coordinator's settings; the gateway uses `offsets.commit.timeout.ms` and those
    about ACLs. `refused` counts the requests that the gateway refuses.

    Raises NoTables if no coordinator has run yet, CannotListen, CertificateError and UsersError.
    """
    limits = settings or GatewaySettings()
    broker = group or GroupCoordinatorConfig()
    topics = Topics(root)
    acls = AclCache(root, broker)
    # The producer must not block the event loop, which all connections share.
    producer = ProducerSettings(
        max_block_ms=0, linger_ms=limits.linger_ms, request_key_file=limits.request_key_file
    )
    with RequestClient(root, producer) as client, ThreadPoolExecutor(1, "brokers") as thread:
        counted = refused or RefusalCounts()
        refusals = Refusals(acls, counted)
        link = CoordinatorLink(client, broker.offsets_commit_timeout_ms, refusals.refusal_of)
        log_writers = LogWriters(
            root, topics, limits.produce_linger_ms, limits.queued_max_request_bytes
        )
        services = Services(
            root, link, topics, log_writers, acls, refusals, counted, cluster_id(root), limits
        )
        gateway = Gateway(services, limits)
        try:
            addresses = {each.name: await gateway.bind(each) for each in listeners}
            services.brokers = brokers = Brokers(root, addresses)
        except BaseException:
            gateway.close()
            raise
        gateway.listen()
        background = (
            gateway.ticks.follow(),
            topics.follow(),
            acls.follow(),
            refusals.follow(),
            gateway.sweep(),
            _refresh_brokers(brokers, acls, thread),
        )
        tasks = [asyncio.create_task(each) for each in background]
        try:
            yield brokers
        finally:
            # This comes first, so that clients that look for a gateway are sent to another one.
            await asyncio.get_running_loop().run_in_executor(thread, brokers.stop)
            await gateway.stop(_STOP_TIMEOUT_S)
            await log_writers.close()
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            await services.close()
            await acls.close()
            await topics.close()
