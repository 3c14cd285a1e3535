"""The gateway: a server that answers Kafka's protocol for a root."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from pipeline.client import ProducerSettings, RequestClient
from pipeline.errors import Failure
from pipeline.gateway.apis import APIS
from pipeline.gateway.apis.api_versions import unsupported
from pipeline.gateway.brokers import LOOK_EVERY_S, Broker, Brokers, cluster_id
from pipeline.gateway.call import Call, Services
from pipeline.gateway.connection import Connection
from pipeline.gateway.coordinator_link import CoordinatorLink
from pipeline.gateway.fields import InvalidFrame
from pipeline.gateway.settings import GatewaySettings
from pipeline.gateway.topics import Topics
from pipeline.gateway.wire import API_VERSIONS, read_body, read_header, response_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = logging.getLogger(__name__)

# Who asks without having said who it is.
ANONYMOUS = "User:ANONYMOUS"
# The producer must not block the loop that all connections share.
_PRODUCER = ProducerSettings(max_block_ms=0)
_SWEEP_EVERY_S = 5.0


class Address(Failure):
    """An address that cannot be listened on, or is none."""


class Gateway:
    """Answers the connections of one listener. Made and used in one event loop."""

    def __init__(self, services: Services, settings: GatewaySettings) -> None:
        self._services = services
        self._settings = settings
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def bind(self, host: str, port: int) -> int:
        """Take an address, port 0 for a free one; returns the port. Raises Address."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._connection, host, port, backlog=1024, start_serving=False
            )
        except (OSError, OverflowError) as error:
            raise Address(f"cannot listen on {host}:{port}: {error}") from error
        return int(self._server.sockets[0].getsockname()[1])

    async def listen(self) -> None:
        """Begin to take connections at the address."""
        assert self._server is not None
        await self._server.start_serving()

    def _connection(self) -> Connection:
        return Connection(self._settings, self.answer, self._take, self._connections.discard)

    def _take(self, connection: Connection) -> bool:
        if len(self._connections) >= self._settings.max_connections:
            log.warning(
                "the connection of %s is refused: there are max.connections (%d)",
                connection.host,
                self._settings.max_connections,
            )
            return False
        self._connections.add(connection)
        return True

    async def sweep(self) -> None:
        """Close connections that are not used, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            limit = time.monotonic() - self._settings.connections_max_idle_ms / 1000
            for connection in list(self._connections):
                if connection.last_used < limit and not connection.is_busy:
                    connection.close()

    async def stop(self, patience_s: float) -> None:
        """Take no more connections, answer what is in flight for so long, and close."""
        if self._server is not None:
            self._server.close()
        until = time.monotonic() + patience_s
        for connection in list(self._connections):
            connection.end()
        while self._connections and time.monotonic() < until:
            await asyncio.sleep(0.02)
        for connection in list(self._connections):
            connection.close()

    async def answer(self, frame: bytes, host: str) -> bytes | None:
        """Answer one frame; None where its client waits for no answer. Raises InvalidFrame."""
        header = read_header(frame, _is_flexible)
        api = APIS.get(header.api_key)
        if api is None:
            raise InvalidFrame(f"API key {header.api_key} is not served")
        if not api.lowest <= header.version <= api.highest:
            if header.api_key != API_VERSIONS:
                raise InvalidFrame(
                    f"{api.name} of version {header.version} is not served: "
                    f"{api.lowest} to {api.highest} are"
                )
            return response_frame(header.correlation_id, api, unsupported(APIS.values()), 0)
        request = read_body(api, header.version, frame, header.body_at)
        call = Call(self._services, header.version, header.client_id, f"/{host}", ANONYMOUS)
        response = await api.answer(call, request)
        if response is None:
            return None
        return response_frame(header.correlation_id, api, response, header.version)


def _is_flexible(api_key: int, version: int) -> bool:
    api = APIS.get(api_key)
    return api is not None and api.lowest <= version <= api.highest and api.is_flexible(version)


async def _look(brokers: Brokers) -> None:
    """Keep up which gateways are alive, until cancelled."""
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        await asyncio.to_thread(brokers.look)


@asynccontextmanager
async def running_gateway(
    root: str,
    listen: tuple[str, int],
    advertise: tuple[str, int] | None = None,
    settings: GatewaySettings | None = None,
) -> AsyncIterator[Broker]:
    """Serve a root while the block runs; gives the broker as clients reach it.

    Raises NoTables where no coordinator has run yet, and Address.
    """
    limits = settings or GatewaySettings()
    topics = Topics(root)
    with RequestClient(root, _PRODUCER) as client:
        services = Services(root, CoordinatorLink(client), topics, cluster_id(root), APIS)
        gateway = Gateway(services, limits)
        host, port = listen
        port = await gateway.bind(host, port)
        services.brokers = brokers = Brokers(root, *(advertise or (host, port)))
        await gateway.listen()
        tasks = [
            asyncio.create_task(each) for each in (topics.follow(), gateway.sweep(), _look(brokers))
        ]
        try:
            yield brokers.own
        finally:
            # First of all: clients that look for a gateway now are sent to another one.
            await asyncio.to_thread(brokers.stop)
            await gateway.stop(5.0)
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            topics.close()
