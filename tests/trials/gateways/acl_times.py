"""The history of permissions: which host was allowed which operation at which time.

It covers the ACLs of the workload: literal names of topics, and anonymous clients by their hosts.
There are no ACLs that deny.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from group_coordinator.pipeline.gateway.brokers import LEASE_S
from tests.trials.simulation.recreated import NOTICED_MS

if TYPE_CHECKING:
    import pyarrow as pa

    from tests.trials.simulation.world import World

# The time for which a gateway that cannot read the ACLs uses its cached ones, ms; clocks drift.
STALE_MS = LEASE_S * 1000 * 1.01
_ANY = "*"
Key = tuple[str, str, str]


class AclTimes:
    """The permissions of hosts over time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_open = True
        # Of a host, an operation and a topic: since when it is allowed or not, ms of true time.
        self._changes: dict[Key, list[tuple[float, bool]]] = {}
        # The intervals without a table of ACLs; ms of true time.
        self._unknown: list[tuple[float, float]] = []
        # The times at which the table was replaced, each with the number of gateway faults before
        # it.
        self._replaced: dict[float, int] = {}

    def take(self, rows: pa.Table | None) -> None:
        """Take in a commit of the table of ACLs."""
        self._is_open = False
        self.known()
        for row in [] if rows is None else rows.to_pylist():
            if row["resource_type"] != "TOPIC":
                continue
            key = row["host"], row["operation"], row["resource_name"]
            self._changes.setdefault(key, []).append((self._world.now, row["added"]))

    # --- tables that are replaced -----------------------------------------------------------------

    def unknown(self) -> None:
        """Record that there is no table of ACLs from now on."""
        self._unknown.append((self._world.now, inf))

    def known(self) -> None:
        """Record that there is a table of ACLs again."""
        if self._unknown and self._unknown[-1][1] == inf:
            self._unknown[-1] = self._unknown[-1][0], self._world.now

    def present(self) -> dict[Key, bool]:
        """Return the permissions in force now."""
        return {key: changes[-1][1] for key, changes in self._changes.items()}

    def replaced(self, now: dict[Key, bool]) -> None:
        """Record that another table has replaced this one, with the permissions in force `now`."""
        self._replaced[self._world.now] = self._disturbances()
        for key, changes in self._changes.items():
            if changes[-1][1] is not now.get(key, False):
                changes.append((self._world.now, now.get(key, False)))

    def _disturbances(self) -> int:
        return sum(self._world.counts.get(each, 0) for each in ("standstills", "reads failed"))

    def _obeyed_ms(self, until: float) -> float:
        """Return how long permissions from before a change may still be used, ms.

        A gateway notices a replaced table at its next poll, unless it is paused or its read fails.
        """
        if self._replaced.get(until) == self._disturbances():
            return NOTICED_MS
        return STALE_MS

    def is_allowed(self, host: str, operation: str, topic: str) -> bool:
        """Whether it is allowed now, by its own name."""
        changes = self._changes.get((host, operation, topic))
        return changes is not None and changes[-1][1]

    def held(self, host: str, operation: str, topic: str, allowed: bool, since: float) -> bool:
        """Whether it was allowed, or was not, at any time since then, by its own name."""
        key = host, operation, topic
        return self._was(key, allowed, since, self._world.now, is_cached=False)

    def was_allowed(
        self, host: str, operation: str, topic: str, since: float, until: float
    ) -> bool:
        """Whether it was allowed at any time between the two, or so shortly before them."""
        if any(at + STALE_MS < since and until < end for at, end in self._unknown):
            # Without ACLs for longer than the cache may be used, a gateway must deny everything.
            return False
        return self._is_open or any(
            self._was(key, True, since, until) for key in _covering(host, operation, topic)
        )

    def was_denied(self, host: str, operation: str, topic: str, since: float, until: float) -> bool:
        """Whether it was not allowed at any time between the two, or so shortly before them."""
        keys = _covering(host, operation, topic)
        return not self._is_open and all(self._was(key, False, since, until) for key in keys)

    def _was(
        self, key: Key, wanted: bool, since: float, until: float, is_cached: bool = True
    ) -> bool:
        state = False
        for at, allowed in self._changes.get(key, ()):
            # The permission before this change held until the change.
            obeyed_ms = self._obeyed_ms(at) if is_cached else 0.0
            if at >= since - obeyed_ms and state is wanted:
                return True
            if at > until:
                return False
            state = allowed
        return state is wanted


def _covering(host: str, operation: str, topic: str) -> list[tuple[str, str, str]]:
    """Return the permissions that allow an operation, by topic or `*`, operation or ALL."""
    return [(host, each, name) for each in (operation, "ALL") for name in (topic, _ANY)]
