"""Acceptance of connections: listening sockets, TLS, quotas, and a rate-limited log.

A connection counts from the moment its socket is accepted. An asyncio server would report a TLS
connection only after its handshake, so silent clients would use file descriptors without being
counted.

Source: Apache Kafka, SocketServer (Acceptor, ConnectionQuotas); max.connections (KIP-402),
max.connections.per.ip.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.errors import CannotListen, Failure
from group_coordinator.pipeline.gateway.memory_pool import AddressQuota
from group_coordinator.pipeline.quoting import quoted_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from group_coordinator.pipeline.gateway.memory_pool import MemoryPool

log = logging.getLogger(__name__)

_BACKLOG = 1024
# The limit of connections that are accepted in one event of the loop.
_AT_ONCE = 100
# Errors of `accept` if there is no connection, and if the system is out of descriptors or memory.
_NO_CONNECTION = (BlockingIOError, InterruptedError, ConnectionAbortedError)
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_S = 1.0


class Acceptor:
    """The listening sockets of one address, in one event loop. A host name may have several."""

    def __init__(self, sockets: Sequence[socket.socket], logger: RateLimitedLogger) -> None:
        self._sockets = sockets
        self._logger = logger
        self._loop = asyncio.get_running_loop()

    @property
    def port(self) -> int:
        """The port of the first socket."""
        return int(self._sockets[0].getsockname()[1])

    def begin(self, on_accepted: Callable[[socket.socket, str], None]) -> None:
        """Start to accept; call `on_accepted` with each socket and its client's address."""
        for listening in self._sockets:
            listening.listen(_BACKLOG)
            self._loop.add_reader(listening, self._accept, listening, on_accepted)

    def close(self) -> None:
        """Stop listening. The system refuses connections that were not accepted yet."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets = ()

    def _accept(
        self, listening: socket.socket, on_accepted: Callable[[socket.socket, str], None]
    ) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, client = listening.accept()
            except _NO_CONNECTION:
                return
            except OSError as error:
                # Other errors are those of a connection that failed before it was accepted.
                if error.errno not in _OUT_OF_RESOURCES:
                    continue
                self._logger.log(logging.ERROR, "connections cannot be accepted: %s", error)
                self._loop.remove_reader(listening)
                self._loop.call_later(_RETRY_S, self._accept_again, listening, on_accepted)
                return
            on_accepted(accepted, str(client[0]))

    def _accept_again(
        self, listening: socket.socket, on_accepted: Callable[[socket.socket, str], None]
    ) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening, on_accepted)


async def bind(host: str, port: int, logger: RateLimitedLogger) -> Acceptor:
    """Bind an address; port 0 selects a free one. Raises CannotListen."""
    loop = asyncio.get_running_loop()
    try:
        # asyncio resolves the host name, and sets the socket options of a server.
        server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as error:
        raise CannotListen(host, port, error) from error
    sockets = [listening.dup() for listening in server.sockets]
    server.close()
    return Acceptor(sockets, logger)


# --- TLS ------------------------------------------------------------------------------------------


class CertificateError(Failure):
    """Error for a certificate or key that cannot be used; the message names the files."""


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or later. Raises CertificateError.

    `certificate` is the PEM file of the certificate chain, and `key` the PEM file of its private
    key. Clients need no certificates, because SASL authenticates them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password, OpenSSL would ask for that of an encrypted key on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise CertificateError(
            f"cannot serve TLS with certificate {certificate} and key {key}: {error}"
        ) from error
    return context


async def client_speaks(accepted: socket.socket) -> None:
    """Wait until the socket of a client is readable, without reading from it.

    asyncio allocates large buffers for TLS, and a silent client must not cost that memory.
    """
    loop = asyncio.get_running_loop()
    spoke = asyncio.Event()
    loop.add_reader(accepted, spoke.set)
    try:
        await spoke.wait()
    finally:
        loop.remove_reader(accepted)


# --- connection quotas ----------------------------------------------------------------------------

# An address has at most one fourth of the memory for large requests, so that several can send.
_ADDRESS_FRACTION = 4


class TooManyConnections(Exception):
    """Error for a connection over a limit; the message names the limit."""


class ClientAddress:
    """A client address, with its number of connections and its quota of the memory."""

    __slots__ = ("connections", "host", "memory")

    def __init__(self, host: str, memory: AddressQuota) -> None:
        self.host = host
        self.memory = memory
        self.connections = 0


class ConnectionQuotas:
    """The numbers of connections of a gateway, in total and by client address.

    `most` and `most_per_address` are their limits. Each address gets a quota of `memory`.
    """

    def __init__(self, most: int, most_per_address: int, memory: MemoryPool) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._memory = memory
        self._addresses: dict[str, ClientAddress] = {}
        self.count = 0

    def add(self, host: str) -> ClientAddress:
        """Count a new connection of an address. Raises TooManyConnections at a limit."""
        if self.count >= self._most:
            raise TooManyConnections(f"the gateway has its limit of {self._most} connections")
        address = self._addresses.get(host)
        if address is None:
            limit = self._memory.limit // _ADDRESS_FRACTION
            address = ClientAddress(host, AddressQuota(self._memory, limit))
            self._addresses[host] = address
        elif address.connections >= self._most_per_address:
            raise TooManyConnections(
                f"its address has its limit of {self._most_per_address} connections "
                "(max.connections.per.ip)"
            )
        address.connections += 1
        self.count += 1
        return address

    def remove(self, address: ClientAddress) -> None:
        """Count a connection of an address as ended."""
        self.count -= 1
        address.connections -= 1
        if not address.connections:
            del self._addresses[address.host]


# --- log lines that unauthenticated clients can cause ---------------------------------------------

# The limit of lines of a kind, and the period for which it holds, s.
_MOST_LINES = 10
_PERIOD_S = 60.0


class RateLimitedLogger:
    """A logger that writes at most `_MOST_LINES` lines of each kind in a minute.

    The first line of the next minute says how many lines were left out.
    """

    def __init__(self) -> None:
        # For each kind: the start of its minute, and the number of lines in it.
        self._kinds: dict[str, tuple[float, int]] = {}

    def log(self, level: int, line: str, *values: object) -> None:
        """Log a line, unless its kind is over the limit. The kind is `line` without its values.

        Values other than integers are quoted and cut, because a client may have chosen them.
        """
        now = monotonic()
        begun, count = self._kinds.get(line, (now, 0))
        left_out = 0
        if now - begun >= _PERIOD_S:
            begun, count, left_out = now, 0, max(0, count - _MOST_LINES)
        self._kinds[line] = begun, count + 1
        if count < _MOST_LINES:
            suffix = f" ({left_out} more lines like this one were left out)" if left_out else ""
            safe = (value if isinstance(value, int) else quoted_text(value) for value in values)
            log.log(level, f"{line}%s", *safe, suffix)
