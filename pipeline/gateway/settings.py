"""The gateway's settings, under the names that Kafka's broker has for them."""

from __future__ import annotations

from msgspec import Struct


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """Limits of a gateway.

    `max_connections`: clients at once (max.connections). `socket_request_max_bytes`: the largest
    frame that is read (socket.request.max.bytes). `connections_max_idle_ms`: a connection without a
    request for so long is closed (connections.max.idle.ms).
    """

    max_connections: int = 100_000
    socket_request_max_bytes: int = 104_857_600
    connections_max_idle_ms: int = 600_000
