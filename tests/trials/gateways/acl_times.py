"""When which host was allowed what: the ACLs of the world as they stand, with their times.

Only as much of ACLs as the workload has: literal names of topics, anonymous clients by their hosts,
and nothing is denied but what nothing allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.pipeline.gateway.brokers import LEASE_S

if TYPE_CHECKING:
    import pyarrow as pa

    from tests.trials.simulation.world import World

# A gateway that cannot read the ACLs decides by what it knows for so long, ms; clocks drift.
STALE_MS = LEASE_S * 1000 * 1.01
_ANY = "*"


class AclTimes:
    """Who was allowed what, and when."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_open = True
        # Of a host, an operation and a topic: since when it is allowed or not, ms of true time.
        self._changes: dict[tuple[str, str, str], list[tuple[float, bool]]] = {}

    def take(self, rows: pa.Table | None) -> None:
        """Take in a commit of the table of ACLs."""
        self._is_open = False
        for row in [] if rows is None else rows.to_pylist():
            if row["resource_type"] != "TOPIC":
                continue
            key = row["host"], row["operation"], row["resource_name"]
            self._changes.setdefault(key, []).append((self._world.now, row["added"]))

    def is_allowed(self, host: str, operation: str, topic: str) -> bool:
        """Whether it is allowed now, by its own name."""
        changes = self._changes.get((host, operation, topic))
        return changes is not None and changes[-1][1]

    def held(self, host: str, operation: str, topic: str, allowed: bool, since: float) -> bool:
        """Whether it was allowed, or was not, at any time since then, by its own name."""
        return self._was((host, operation, topic), allowed, since + STALE_MS, self._world.now)

    def was_allowed(
        self, host: str, operation: str, topic: str, since: float, until: float
    ) -> bool:
        """Whether it was allowed at any time between the two, or so shortly before them."""
        return self._is_open or any(
            self._was(key, True, since, until) for key in _covering(host, operation, topic)
        )

    def was_denied(self, host: str, operation: str, topic: str, since: float, until: float) -> bool:
        """Whether it was not allowed at any time between the two, or so shortly before them."""
        keys = _covering(host, operation, topic)
        return not self._is_open and all(self._was(key, False, since, until) for key in keys)

    def _was(self, key: tuple[str, str, str], wanted: bool, since: float, until: float) -> bool:
        state = False
        for at, allowed in self._changes.get(key, ()):
            # What held before this change held until then.
            if at >= since - STALE_MS and state is wanted:
                return True
            if at > until:
                return False
            state = allowed
        return state is wanted


def _covering(host: str, operation: str, topic: str) -> list[tuple[str, str, str]]:
    """What allows it: by the name and for any, for the operation and all."""
    return [(host, each, name) for each in (operation, "ALL") for name in (topic, _ANY)]
