"""Places for connections: so many in all, and so many of one client address.

A connection has its place from the moment its socket is accepted, before any byte of it is read, so
whoever says nothing is counted as well.

Source: Apache Kafka, ConnectionQuotas; max.connections (KIP-402), max.connections.per.ip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.gateway.room import Share

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.room import Room

# An address has this part of the room for large requests at most: several can send at once.
_SHARES = 4


class NoPlace(Exception):
    """There is no place for a connection; the message says what is full."""


class ClientAddress:
    """A client address: how many connections it has, and its share of the room."""

    __slots__ = ("connections", "host", "memory")

    def __init__(self, host: str, memory: Share) -> None:
        self.host = host
        self.memory = memory
        self.connections = 0


class Places:
    """The places of a gateway's connections; `memory` bytes are the room of their requests."""

    def __init__(self, most: int, most_per_address: int, memory: Room) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._memory = memory
        self._addresses: dict[str, ClientAddress] = {}
        self.taken = 0

    def take(self, host: str) -> ClientAddress:
        """Take a place for a connection from an address. Raises NoPlace."""
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
        """Give a place back."""
        self.taken -= 1
        address.connections -= 1
        if not address.connections:
            del self._addresses[address.host]
