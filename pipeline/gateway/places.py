"""Limits of the number of connections, in total and for each client address.

A connection is counted from the moment its socket is accepted, before any byte of it is read. So
silent clients are counted too.

Source: Apache Kafka, ConnectionQuotas; max.connections (KIP-402), max.connections.per.ip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.gateway.room import Share

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.room import Room

# An address has at most one fourth of the memory for large requests, so that several can send.
_SHARES = 4


class NoPlace(Exception):
    """Error for a connection over a limit; the message names the limit."""


class ClientAddress:
    """A client address, with its number of connections and its share of the memory."""

    __slots__ = ("connections", "host", "memory")

    def __init__(self, host: str, memory: Share) -> None:
        self.host = host
        self.memory = memory
        self.connections = 0


class Places:
    """The connection counts of a gateway. `memory` counts the bytes of their large requests."""

    def __init__(self, most: int, most_per_address: int, memory: Room) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._memory = memory
        self._addresses: dict[str, ClientAddress] = {}
        self.taken = 0

    def take(self, host: str) -> ClientAddress:
        """Count a new connection from an address. Raises NoPlace if a limit is reached."""
        if self.taken >= self._most:
            raise NoPlace(f"all of the {self._most} places are taken")
        address = self._addresses.get(host)
        if address is None:
            address = ClientAddress(host, Share(self._memory, self._memory.limit // _SHARES))
            self._addresses[host] = address
        elif address.connections >= self._most_per_address:
            raise NoPlace(f"its address has {self._most_per_address} (max.connections.per.ip)")
        address.connections += 1
        self.taken += 1
        return address

    def leave(self, address: ClientAddress) -> None:
        """Count a connection as ended."""
        self.taken -= 1
        address.connections -= 1
        if not address.connections:
            del self._addresses[address.host]
