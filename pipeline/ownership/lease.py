"""Leases: which node is alive.

A lease is a transaction of the `coordinators` table: its version is when the node last said that it
is alive, ms by the node's own clock. No clock is compared with another one: a lease holds while its
version changes within `lease.ms` of the observer's own time.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from group_coordinator.coordinator.ownership import lease_app_id
from group_coordinator.pipeline import background
from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.failures import STORE_FAILS
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import COORDINATORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.coordinator.ownership import ClusterState

log = logging.getLogger(__name__)

_RENEWALS_PER_LEASE = 4
# How long a query's first batch may take, s. It waits until a cluster has executors to give, and
# until they have unpacked what they run.
FIRST_BATCH_S = 600.0


class AwakeClock:
    """Seconds in which its process did not stand still, for one thread at a time.

    It is read more often than every `longest_gap_s`. A longer gap counts as `longest_gap_s`,
    because the process was stopped meanwhile, or its machine slept, and has not seen what others
    did.
    """

    def __init__(self, longest_gap_s: float, clock: Callable[[], float]) -> None:
        self._longest_gap_s = longest_gap_s
        self._clock = clock
        self._read_at = clock()
        self._awake_s = 0.0

    def __call__(self) -> float:
        """Seconds since this clock was made."""
        now = self._clock()
        self._awake_s += min(now - self._read_at, self._longest_gap_s)
        self._read_at = now
        return self._awake_s


def longest_gap_s(lease_ms: int) -> float:
    """The longest time, s, between two looks of a process that does not stand still."""
    return 2 * renewal_interval_s(lease_ms)


def renewal_interval_s(lease_ms: int) -> float:
    """How often a lease is renewed, s."""
    return lease_ms / _RENEWALS_PER_LEASE / 1000


class SignWatch:
    """Tells whose sign of life has changed within a lease of the observer's own time.

    Who was not seen before has all of `lease_ms` to show another sign.
    """

    def __init__(self, lease_ms: float, clock: Callable[[], float] = monotonic) -> None:
        self._lease_ms = lease_ms
        self._clock = clock
        self._seen: dict[int, tuple[object, float]] = {}

    def holds(self, who: int, sign: object) -> bool:
        """Take note of a sign; whether the lease holds."""
        now = self._clock()
        seen, since = self._seen.get(who, (None, now))
        if sign != seen:
            since = now
        self._seen[who] = (sign, since)
        return (now - since) * 1000 <= self._lease_ms


def renew(appender: Appender, app_id: str, now_ms: int) -> None:
    """Renew a lease: its version is the time, or more where the clock was set back."""
    appender.append(None, app_id, max(now_ms, appender.last_version(app_id) + 1))


class Observer:
    """Tells which nodes are alive, by seeing their leases change.

    Time in which its process stood still does not count against others: otherwise the nodes of a
    machine that wakes up would all take each other for dead.
    """

    def __init__(self, me: int, lease_ms: int, clock: Callable[[], float] = monotonic) -> None:
        self._me = me
        self._signs = SignWatch(lease_ms, AwakeClock(longest_gap_s(lease_ms), clock))

    def alive(self, cluster: ClusterState, lease_of: Callable[[int], int]) -> set[int]:
        """The nodes that have not stopped and whose lease holds; always this one."""
        living = {self._me}
        for node_id, node in cluster.nodes.items():
            if not node.stopped and self._signs.holds(node_id, (node.epoch, lease_of(node_id))):
                living.add(node_id)
        return living


class ProgressWatch:
    """Tells whether a node's query gets on: whether its count of batches changed lately.

    A query that hangs would hold its partitions for ever while its process renews the lease. For
    one thread that says what to watch, and others that ask. Time in which the process, and its
    query with it, stood still does not count (`AwakeClock`).
    """

    def __init__(
        self, timeout_s: float, longest_gap_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._timeout_s = timeout_s
        self._clock = AwakeClock(longest_gap_s, clock)
        self._lock = threading.Lock()
        self._count: Callable[[], int] | None = None
        self._seen = 0
        self._since = 0.0
        self._has_got_on = False

    def watch(self, count: Callable[[], int] | None) -> None:
        """Watch a query from now on; None while there is none to watch."""
        with self._lock:
            self._count = count
            self._seen = 0 if count is None else count()
            self._since = self._clock()
            self._has_got_on = False

    def stuck_s(self) -> float:
        """For how long the query has not got on, seconds; 0 if there is none."""
        with self._lock:
            if self._count is None:
                return 0.0
            now, count = self._clock(), self._count()
            if count != self._seen:
                self._seen, self._since, self._has_got_on = count, now, True
            return now - self._since

    def gets_on(self) -> bool:
        """Whether the query has got on within the timeout."""
        return self.stuck_s() <= self._timeout_s

    def hangs(self) -> bool:
        """Whether the query is to be given up: others may serve its groups long before that.

        A first batch may take `FIRST_BATCH_S`: a query that is begun anew would only wait again.
        """
        stuck_s = self.stuck_s()
        shortest_s = 0.0 if self._has_got_on else FIRST_BATCH_S
        return stuck_s > max(self._timeout_s, shortest_s)


class LeaseRenewal:
    """Says that this node is alive, at once and then four times a lease, until it is stopped.

    Nothing is said while `gets_on` is false: others take over then, and fence this node off.
    """

    def __init__(
        self,
        root: str,
        node_id: int,
        lease_ms: int,
        clock: Callable[[], int] = clock_ms,
        gets_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._gets_on = gets_on
        self._appender = Appender(table_uri(root, COORDINATORS))
        self._app_id = lease_app_id(node_id)
        self._clock = clock
        self._is_said = False
        self._renewing = threading.Lock()
        self.renew()
        wait_s = renewal_interval_s(lease_ms)
        self._renewals = background.repeat("lease", wait_s, self._try_to_renew)

    def stop(self) -> None:
        """Renew no more."""
        self._renewals.stop()

    def _try_to_renew(self) -> None:
        if not self._gets_on():
            if not self._is_said:
                log.warning("the lease is not renewed until a batch of the query ends")
            self._is_said = True
            return
        self._is_said = False
        try:
            self.renew()
        except STORE_FAILS as error:
            # Should it go on like this, others take over, and this node is fenced off.
            log.warning("the lease was not renewed: %s", error)

    def renew(self) -> None:
        """Renew now, from any thread. Raises DeltaError, OSError and Failure."""
        # An appender is one thread's: of two, one would take the other's commit for its own too,
        # and go on one version beyond the log's end.
        with self._renewing:
            renew(self._appender, self._app_id, self._clock())
