"""The gateways of a root, which are the brokers of the cluster that its clients see.

Each start and stop is a row of the `gateways` table. A gateway that lives on says so by a
transaction of that table, without rows, whose version rises: a lease. No clock is compared with
another one. A gateway is taken for alive while its lease changes within `LEASE_S` of the observer's
own time; one that was not seen before has all of that time to renew.

A gateway has an address for each of its listeners. Clients of a listener are told of the gateways
that have one of its name, at that one's address.
"""

from __future__ import annotations

import logging
import threading
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID
from zlib import crc32

from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.failures import STORE_FAILS
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.ownership.lease import AwakeClock, SignWatch, renew
from group_coordinator.pipeline.tables.store import ensure_table, read_table, table_uri
from group_coordinator.schemas.rows import GatewayEvent, GatewayListener
from group_coordinator.schemas.tables import GATEWAYS, REQUESTS, from_arrow, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    # Given the newest row of every address, returns the gateway that the next row is of.
    _Choice = Callable[[dict[tuple[str, int], GatewayEvent]], "Broker"]

log = logging.getLogger(__name__)

LEASE_S = 10.0
# How often a lease is renewed and the others' are looked at, s.
LOOK_EVERY_S = LEASE_S / 4
_EVENTS = "gateways"


class Broker(NamedTuple):
    """A gateway as clients of a listener reach it."""

    node_id: int
    host: str
    port: int


class Brokers:
    """The gateways that are alive, this one among them; for any thread."""

    def __init__(self, root: str, addresses: Mapping[str, tuple[str, int]]) -> None:
        """Begin to serve at the address of each listener; `own` is the first one's.

        The first address keeps its number, or is given one.
        """
        self._root = root
        self._lock = threading.Lock()
        ensure_table(root, GATEWAYS)
        self._appender = Appender(table_uri(root, GATEWAYS))
        self._events: list[GatewayEvent] = []
        # Of the time in which this one could not look nothing counts against the others.
        self._signs = SignWatch(LEASE_S * 1000, AwakeClock(2 * LOOK_EVERY_S, monotonic))
        self._listeners = tuple(
            GatewayListener(name, *address) for name, address in addresses.items()
        )
        self.own = self._begin(*next(iter(addresses.values())))
        self.own_at = {
            name: Broker(self.own.node_id, *address) for name, address in addresses.items()
        }
        self._alive = {name: [broker] for name, broker in self.own_at.items()}
        self.look()

    def alive(self, listener: str) -> Sequence[Broker]:
        """The gateways that a listener's clients may be sent to, in the order of their numbers."""
        return self._alive[listener]

    def serving(self, key: str, listener: str) -> Broker:
        """The gateway that a group's members, or a partition's consumers, are sent to."""
        alive = self._alive[listener]
        return alive[crc32(key.encode()) % len(alive)]

    def look(self) -> None:
        """Renew this gateway's lease, and see which others have renewed theirs.

        While the table cannot be reached, the gateways stay that were alive.
        """
        with self._lock:
            try:
                renew(self._appender, _lease_of(self.own.node_id), clock_ms())
                self._read()
            except STORE_FAILS as error:
                log.warning("which gateways are alive cannot be told: %s", error)
                return
            self._judge()

    def _judge(self) -> None:
        alive = {name: {broker} for name, broker in self.own_at.items()}
        for event in self._newest().values():
            lease = self._appender.last_version(_lease_of(event.broker_id))
            if self._signs.holds(event.broker_id, lease) and not event.stopped:
                for name, brokers in alive.items():
                    brokers.update(_at(event, name))
        self._alive = {name: sorted(brokers) for name, brokers in alive.items()}

    def stop(self) -> None:
        """Say that this gateway stops: clients are not sent to it any more.

        If that cannot be said, its lease ends.
        """
        with self._lock:
            try:
                self._append(lambda _: self.own, stopped=True)
            except STORE_FAILS as error:
                log.warning("that this gateway stops cannot be said: %s", error)

    # --- the table --------------------------------------------------------------------------------

    def _begin(self, host: str, port: int) -> Broker:
        def numbered(newest: dict[tuple[str, int], GatewayEvent]) -> Broker:
            known = newest.get((host, port))
            free = max((event.broker_id for event in newest.values()), default=-1) + 1
            return Broker(free if known is None else known.broker_id, host, port)

        return self._append(numbered, stopped=False)

    def _append(self, broker_of: _Choice, stopped: bool) -> Broker:
        """Append a row that the newest rows lead to, again while another gateway was faster."""
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


def _at(event: GatewayEvent, listener: str) -> Iterator[Broker]:
    """The gateway as clients of a listener reach it, if they do."""
    if event.listeners is None:
        yield Broker(event.broker_id, event.host, event.port)
        return
    for each in event.listeners:
        if each.name == listener:
            yield Broker(event.broker_id, each.host, each.port)


def _lease_of(broker_id: int) -> str:
    return f"gateway-lease-{broker_id}"


def cluster_id(root: str) -> str:
    """The id of a root's cluster, in the form of Kafka's: that of its `requests` table."""
    table_id = open_delta(table_uri(root, REQUESTS)).metadata().id
    return urlsafe_b64encode(UUID(str(table_id)).bytes).decode().rstrip("=")
