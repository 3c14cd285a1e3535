"""Sockets that listen at an address, and tell of what they accept at once.

A server of asyncio's would tell of a connection over TLS only when its handshake is over: whoever
is silent would take descriptors, and be counted nowhere.
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
# How many connections are accepted before the loop does something else.
_AT_ONCE = 100
# What `accept` fails with while there is none, and while the system has nothing left to give.
_NONE_THERE = (BlockingIOError, InterruptedError, ConnectionAbortedError)
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_TRY_AGAIN_S = 1.0


class Listening:
    """The sockets of one address: a host may have several. For one event loop."""

    def __init__(self, sockets: Sequence[socket.socket], lines: Seldom) -> None:
        self._sockets = sockets
        self._lines = lines
        self._loop = asyncio.get_running_loop()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._sockets[0].getsockname()[1])

    def begin(self, accepted: Callable[[socket.socket, str], None]) -> None:
        """Begin to accept; `accepted` gets each socket, and its client's address."""
        for each in self._sockets:
            each.listen(_BACKLOG)
            self._loop.add_reader(each, self._accept, each, accepted)

    def close(self) -> None:
        """Accept no more. Whoever was not accepted yet is refused by the system."""
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
                # A connection that failed before it was accepted fails here, with its own errors.
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
    """Take an address, port 0 for a free one. Raises CannotListen."""
    loop = asyncio.get_running_loop()
    try:
        # It finds the addresses of the host's name, and sets the options that a server needs.
        server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as error:
        raise CannotListen(host, port, error) from error
    sockets = [each.dup() for each in server.sockets]
    server.close()
    return Listening(sockets, lines)
