"""The live gateways of a root, which clients see as the brokers of the cluster.

Each start and stop of a gateway is a row of the `gateways` table. A live gateway renews its lease
by commits to that table, without rows and with a rising transaction version. Another gateway
considers it alive while the lease changes within `LEASE_S` on its own clock, so clocks of machines
are not compared. A newly seen gateway has `LEASE_S` to renew its lease.

Clients of a listener get the addresses of the listeners of the same name.
"""

from __future__ import annotations

import logging
import threading
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID
from zlib import crc32

from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta import STORE_FAILS, Appender, open_delta
from group_coordinator.pipeline.ownership.lease import AwakeClock, LeaseWatch, renew
from group_coordinator.pipeline.tables import ensure_table, read_table, table_uri
from group_coordinator.schemas.rows import GatewayEvent, GatewayListener
from group_coordinator.schemas.tables import GATEWAYS, REQUESTS, from_arrow, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    # A function from the newest row of every address to the gateway of the next row.
    _BrokerChoice = Callable[[dict[tuple[str, int], GatewayEvent]], "Broker"]

log = logging.getLogger(__name__)

LEASE_S = 10.0
# The time between two renewals of the lease and polls of the other leases, s.
REFRESH_EVERY_S = LEASE_S / 4
_EVENTS = "gateways"


class Broker(NamedTuple):
    """A gateway: its node id, and its address for the clients of one listener."""

    node_id: int
    host: str
    port: int


class Brokers:
    """The live gateways, including this one. Thread-safe."""

    def __init__(self, root: str, addresses: Mapping[str, tuple[str, int]]) -> None:
        """Register this gateway with the address of each listener; `own` has the first address.

        The gateway keeps the node id that its first address had before, or gets a new one.
        """
        self._root = root
        self._lock = threading.Lock()
        ensure_table(root, GATEWAYS)
        self._appender = Appender(table_uri(root, GATEWAYS))
        self._events: list[GatewayEvent] = []
        # The time in which this gateway could not poll is not counted against other leases.
        self._lease_watch = LeaseWatch(LEASE_S * 1000, AwakeClock(2 * REFRESH_EVERY_S, monotonic))
        self._listeners = tuple(
            GatewayListener(name, *address) for name, address in addresses.items()
        )
        self.own = self._register(*next(iter(addresses.values())))
        self.own_by_listener = {
            name: Broker(self.own.node_id, *address) for name, address in addresses.items()
        }
        self._alive = {name: [broker] for name, broker in self.own_by_listener.items()}
        self.refresh()

    def alive(self, listener: str) -> Sequence[Broker]:
        """Return the live gateways with this listener, ordered by node id."""
        return self._alive[listener]

    def gateway_for(self, key: str, listener: str) -> Broker:
        """Return the live gateway for a group or partition, by the hash of `key`."""
        alive = self._alive[listener]
        return alive[crc32(key.encode()) % len(alive)]

    def refresh(self) -> None:
        """Renew this gateway's lease, and check the leases of all other gateways.

        If the table cannot be read or written, the live gateways stay the same.
        """
        with self._lock:
            try:
                renew(self._appender, _lease_of(self.own.node_id), clock_ms())
                self._read()
            except STORE_FAILS as error:
                log.warning("the live gateways are not updated: the table fails: %s", error)
                return
            self._update_alive()

    def _update_alive(self) -> None:
        alive = {name: {broker} for name, broker in self.own_by_listener.items()}
        for event in self._newest().values():
            lease = self._appender.last_version(_lease_of(event.broker_id))
            if self._lease_watch.holds(event.broker_id, lease) and not event.stopped:
                for name, brokers in alive.items():
                    brokers.update(_at_listener(event, name))
        self._alive = {name: sorted(brokers) for name, brokers in alive.items()}

    def stop(self) -> None:
        """Write that this gateway stops, so that clients are not sent to it any more.

        If the row cannot be written, its lease expires instead.
        """
        with self._lock:
            try:
                self._append(lambda _: self.own, stopped=True)
            except STORE_FAILS as error:
                log.warning("the stop of this gateway is not written; its lease expires: %s", error)

    # --- the table --------------------------------------------------------------------------------

    def _register(self, host: str, port: int) -> Broker:
        def numbered(newest: dict[tuple[str, int], GatewayEvent]) -> Broker:
            known = newest.get((host, port))
            free = max((event.broker_id for event in newest.values()), default=-1) + 1
            return Broker(free if known is None else known.broker_id, host, port)

        return self._append(numbered, stopped=False)

    def _append(self, broker_of: _BrokerChoice, stopped: bool) -> Broker:
        """Append the row that `broker_of` chooses; retry while another gateway commits first."""
        while True:
            self._read()
            number = max((event.number for event in self._events), default=-1) + 1
            broker = broker_of(self._newest())
            event = GatewayEvent(number, *broker, stopped, clock_ms(), self._listeners)
            if self._appender.append(to_arrow(GATEWAYS, [event]), _EVENTS, number):
                return broker

    def _read(self) -> None:
        self._appender.forget()
        if self._appender.last_version(_EVENTS) >= len(self._events):
            rows = read_table(self._root, GATEWAYS)
            self._events = from_arrow(GatewayEvent, rows)

    def _newest(self) -> dict[tuple[str, int], GatewayEvent]:
        ordered = sorted(self._events, key=lambda event: event.number)
        return {(event.host, event.port): event for event in ordered}


def _at_listener(event: GatewayEvent, listener: str) -> Iterator[Broker]:
    """Yield the gateway at the address of a listener, if it has that listener."""
    if event.listeners is None:
        yield Broker(event.broker_id, event.host, event.port)
        return
    for each in event.listeners:
        if each.name == listener:
            yield Broker(event.broker_id, each.host, each.port)


def _lease_of(broker_id: int) -> str:
    return f"gateway-lease-{broker_id}"


def cluster_id(root: str) -> str:
    """Return the cluster id of a root, in Kafka's format: the id of its `requests` table."""
    table_id = open_delta(table_uri(root, REQUESTS)).metadata().id
    return urlsafe_b64encode(UUID(str(table_id)).bytes).decode().rstrip("=")
