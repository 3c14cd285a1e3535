"""A gateway that stops leaves no client's connection open behind it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from group_coordinator.pipeline.gateway import server
from group_coordinator.pipeline.gateway.memory_pool import MemoryPool
from group_coordinator.pipeline.gateway.server import Gateway
from group_coordinator.pipeline.gateway_settings import GatewaySettings
from tests.waiting import LIMIT_S

_WAIT_S = 10.0


@pytest.mark.parametrize("rounds", range(5))
def test_who_connects_while_the_gateway_stops_is_let_go(rounds: int) -> None:
    """After so many rounds of the loop the connection is not accepted, accepted, or made."""
    settings = GatewaySettings()
    services: Any = SimpleNamespace(settings=settings, memory=MemoryPool(1))

    async def stop_beside_a_client() -> socket.socket:
        gateway = Gateway(services, settings)
        _, port = await gateway.bind(settings.single_listener(("127.0.0.1", 0)))
        gateway.listen()
        client = socket.create_connection(("127.0.0.1", port), _WAIT_S)
        for _ in range(rounds):
            await asyncio.sleep(0)
        await gateway.stop(0)
        return client

    # The connection's end may come as a reset.
    with asyncio.run(stop_beside_a_client()) as client, suppress(ConnectionResetError):
        assert client.recv(1) == b""


def test_a_tls_handshake_that_does_not_end_holds_nobody_up(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "AUTHENTICATION_LIMIT_S", 1_000.0)
    settings = GatewaySettings(
        ssl_certificate_location=str(certificate),
        ssl_key_location=str(certificate.with_name("key.pem")),
    )
    services: Any = SimpleNamespace(settings=settings, memory=MemoryPool(1))

    async def stop_beside_a_stranger() -> socket.socket:
        gateway = Gateway(services, settings)
        _, port = await gateway.bind(settings.single_listener(("127.0.0.1", 0)))
        gateway.listen()
        stranger = socket.create_connection(("127.0.0.1", port), _WAIT_S)
        for _ in range(10):
            await asyncio.sleep(0)
        await asyncio.wait_for(gateway.stop(0), LIMIT_S)
        return stranger

    with asyncio.run(stop_beside_a_stranger()) as stranger, suppress(ConnectionResetError):
        assert stranger.recv(1) == b""
