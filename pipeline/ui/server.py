"""The HTTP server of the pages, from its start to its end."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import uvicorn

from group_coordinator.pipeline.errors import CannotListen, UsageError, address
from group_coordinator.pipeline.hosts import is_loopback
from group_coordinator.pipeline.ui.app import Access, entry_url, make_app
from group_coordinator.pipeline.ui.root_snapshot import SnapshotCache

# The time in which requests in progress must end at a stop, s.
_SHUTDOWN_TIMEOUT_S = 5
_MAX_CONNECTIONS = 256


class NotLoopback(UsageError):
    """Changes are not allowed, because the address is not a loopback address."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers; uvicorn would raise a captured signal again at its end."""
        yield


def serve(
    root: str,
    listen: tuple[str, int],
    *,
    allow_changes: bool = False,
    names: Iterable[str] = (),
    say: Callable[[str], None] = print,
) -> None:
    """Serve a root's pages until SIGTERM or SIGINT. Raises CannotListen and NotLoopback.

    Changes are allowed on a loopback address only, because the key would cross the network
    unencrypted. `names` are names allowed in a Host header besides localhost. `say` gets the lines
    for the terminal.
    """
    host, port = listen
    if allow_changes and not is_loopback(host):
        raise NotLoopback(
            f"changes are allowed only on a loopback address, and {host} is not one: listen on "
            "127.0.0.1 behind a proxy or a tunnel that authenticates its users"
        )
    with _bound(host, port) as taken:
        port = taken.getsockname()[1]
        access = Access(
            secrets.token_urlsafe(24) if allow_changes else None, f"group-coordinator-{port}"
        )
        app = make_app(SnapshotCache(root), access, {*names, host})
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="warning",
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
            )
        )
        lines = [f"ui: {entry_url(address(host, port), access.key)} shows {root}"]
        if allow_changes:
            lines.append("ui: this link gives permission to change offsets; do not share it")
        if not is_loopback(host):
            lines.append(
                f"ui: WARNING: {host} is not a loopback address: other hosts can read all groups"
            )
        asyncio.run(_run(server, taken, lambda: say("\n".join(lines))))
        say("ui: stopped")


async def _run(server: _Server, taken: socket.socket, announce: Callable[[], object]) -> None:
    def stop() -> None:
        # uvicorn would print a stack trace for a request that is cancelled at the timeout.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop)
    # Print only now, because a reader of the line may send a signal at once.
    announce()
    await server.serve(sockets=[taken])


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens on the address; port 0 takes a free port. Raises CannotListen."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[
            0
        ]
        taken = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(host, port, error) from error
    with taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(place)
            # From now on the connection of a browser waits instead of being refused.
            taken.listen(_MAX_CONNECTIONS)
        except OSError as error:
            raise CannotListen(host, port, error) from error
        yield taken
