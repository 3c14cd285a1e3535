"""Listening sockets that report each accepted connection at once.

An asyncio server reports a TLS connection only after its handshake. So silent clients would use
file descriptors without being counted.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING

from group_coordinator.pipeline.errors import CannotListen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from group_coordinator.pipeline.gateway.seldom import Seldom

_BACKLOG = 1024
# The limit of connections that are accepted in one event of the loop.
_AT_ONCE = 100
# Errors of `accept` if there is no connection, and if the system is out of descriptors or memory.
_NONE_THERE = (BlockingIOError, InterruptedError, ConnectionAbortedError)
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_TRY_AGAIN_S = 1.0


class Listening:
    """The sockets of one address, because a host name may have several. For one event loop."""

    def __init__(self, sockets: Sequence[socket.socket], lines: Seldom) -> None:
        self._sockets = sockets
        self._lines = lines
        self._loop = asyncio.get_running_loop()

    @property
    def port(self) -> int:
        """The port of the first socket."""
        return int(self._sockets[0].getsockname()[1])

    def begin(self, accepted: Callable[[socket.socket, str], None]) -> None:
        """Start to accept; call `accepted` with each socket and its client's address."""
        for each in self._sockets:
            each.listen(_BACKLOG)
            self._loop.add_reader(each, self._accept, each, accepted)

    def close(self) -> None:
        """Stop listening. The system refuses connections that were not accepted yet."""
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._sockets = ()

    def _accept(
        self, listening: socket.socket, accepted: Callable[[socket.socket, str], None]
    ) -> None:
        for _ in range(_AT_ONCE):
            try:
                made, client = listening.accept()
            except _NONE_THERE:
                return
            except OSError as error:
                # Other errors are those of a connection that failed before it was accepted.
                if error.errno not in _SCARCE:
                    continue
                self._lines.say(logging.ERROR, "connections cannot be accepted: %s", error)
                self._loop.remove_reader(listening)
                self._loop.call_later(_TRY_AGAIN_S, self._accept_again, listening, accepted)
                return
            accepted(made, str(client[0]))

    def _accept_again(
        self, listening: socket.socket, accepted: Callable[[socket.socket, str], None]
    ) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening, accepted)


async def bind(host: str, port: int, lines: Seldom) -> Listening:
    """Bind an address; port 0 selects a free one. Raises CannotListen."""
    loop = asyncio.get_running_loop()
    try:
        # asyncio resolves the host name, and sets the socket options of a server.
        server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as error:
        raise CannotListen(host, port, error) from error
    sockets = [each.dup() for each in server.sockets]
    server.close()
    return Listening(sockets, lines)
