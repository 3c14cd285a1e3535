"""A gateway in a thread of the test's process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from group_coordinator.coordinator.signatures import RequestKey
from group_coordinator.pipeline.gateway.brokers import Broker, Brokers
from group_coordinator.pipeline.gateway.server import running_gateway
from group_coordinator.pipeline.gateway_settings import GatewaySettings
from tests.pipeline.small import SmallCoordinator

START_S = 30.0
_LINGER_MS = 10
BROKER = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1_000}


@contextmanager
def gateway(
    root: str, port: int = 0, loop: asyncio.AbstractEventLoop | None = None, **options: Any
) -> Iterator[Broker]:
    """Serve a root on a port of the loopback interface, 0 a free one, while the block runs.

    Requests linger shortly: a test's client has nobody to wait for.
    """
    with gateways(root, port, loop, **options) as brokers:
        yield brokers.own


@contextmanager
def gateways(
    root: str, port: int = 0, loop: asyncio.AbstractEventLoop | None = None, **options: Any
) -> Iterator[Brokers]:
    """The same; gives the gateways of the root, as this one sees them."""
    settings = replace(options.pop("settings", GatewaySettings()), linger_ms=_LINGER_MS)
    loop = loop or asyncio.new_event_loop()
    started: Future[Brokers] = Future()
    stop = asyncio.Event()
    only = settings.single_listener(("127.0.0.1", port))

    async def serve() -> None:
        try:
            async with running_gateway(
                root, settings.configured_listeners or (only,), settings=settings, **options
            ) as brokers:
                started.set_result(brokers)
                await stop.wait()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield started.result(START_S)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@contextmanager
def standing_still(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Have a gateway's loop do nothing while the block runs, as a process that is stopped."""
    begun, over = threading.Event(), threading.Event()

    def stand_still() -> None:
        begun.set()
        over.wait(START_S)

    loop.call_soon_threadsafe(stand_still)
    begun.wait(START_S)
    try:
        yield
    finally:
        over.set()


@contextmanager
def coordinator(
    root: str, keys: Sequence[RequestKey] | None = None, super_users: str = ""
) -> Iterator[SmallCoordinator]:
    """Decide the requests of a root, without Spark, while the block runs."""
    running = SmallCoordinator(root, {**BROKER, "super.users": super_users}, keys)
    try:
        yield running
    finally:
        running.stop()
