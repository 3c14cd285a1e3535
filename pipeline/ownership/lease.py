"""Leases, which determine the nodes that are alive.

A lease is a transaction of the `coordinators` table; its version is the time of the last renewal,
ms by the node's clock. Clocks of two machines are never compared: a lease holds while its version
changes within `lease.ms` on the observer's clock.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from group_coordinator.coordinator.ownership import lease_app_id
from group_coordinator.pipeline import background
from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta import STORE_FAILS, Appender
from group_coordinator.pipeline.tables import table_uri
from group_coordinator.schemas.tables import COORDINATORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.coordinator.ownership import ClusterState

log = logging.getLogger(__name__)

_RENEWALS_PER_LEASE = 4
# Timeout of a query's first batch, s. It waits until the cluster has provided executors, and they
# have unpacked the packages.
FIRST_BATCH_S = 600.0


class AwakeClock:
    """A clock that does not count time in which its process was suspended. Not thread-safe.

    It must be read at least every `longest_gap_s`. A longer gap counts as `longest_gap_s`, because
    the process was suspended and could not observe other nodes.
    """

    def __init__(self, longest_gap_s: float, clock: Callable[[], float]) -> None:
        self._longest_gap_s = longest_gap_s
        self._clock = clock
        self._read_at = clock()
        self._awake_s = 0.0

    def __call__(self) -> float:
        """Return the seconds since the clock was created, without suspended time."""
        now = self._clock()
        self._awake_s += min(now - self._read_at, self._longest_gap_s)
        self._read_at = now
        return self._awake_s


def longest_gap_s(lease_ms: int) -> float:
    """Return the longest time between two readings in a process that is not suspended, s."""
    return 2 * renewal_interval_s(lease_ms)


def renewal_interval_s(lease_ms: int) -> float:
    """Return the interval between two renewals of a lease, s."""
    return lease_ms / _RENEWALS_PER_LEASE / 1000


class LeaseWatch:
    """An observer of leases, each known by a sign: a value that changes with every renewal.

    A lease holds while its sign changes within `lease_ms` on the observer's clock. A new holder's
    lease holds for `lease_ms` from its first sign.
    """

    def __init__(self, lease_ms: float, clock: Callable[[], float] = monotonic) -> None:
        self._lease_ms = lease_ms
        self._clock = clock
        self._seen: dict[int, tuple[object, float]] = {}

    def holds(self, who: int, sign: object) -> bool:
        """Record a holder's current sign; return whether the sign changed within `lease_ms`."""
        now = self._clock()
        seen, since = self._seen.get(who, (None, now))
        if sign != seen:
            since = now
        self._seen[who] = (sign, since)
        return (now - since) * 1000 <= self._lease_ms


def renew(appender: Appender, app_id: str, now_ms: int) -> None:
    """Renew a lease: append `now_ms` as its version, or a larger one if the clock was set back."""
    appender.append(None, app_id, max(now_ms, appender.last_version(app_id) + 1))


class LeaseObserver:
    """An observer of the nodes' leases, which determines the nodes that are alive.

    Time in which the observer was suspended does not count. Otherwise all nodes of a machine that
    resumes would consider each other dead.
    """

    def __init__(self, me: int, lease_ms: int, clock: Callable[[], float] = monotonic) -> None:
        self._me = me
        self._signs = LeaseWatch(lease_ms, AwakeClock(longest_gap_s(lease_ms), clock))

    def alive(self, cluster: ClusterState, lease_of: Callable[[int], int]) -> set[int]:
        """Return this node, and all nodes that have not stopped and have a lease that holds."""
        living = {self._me}
        for node_id, node in cluster.nodes.items():
            if not node.stopped and self._signs.holds(node_id, (node.epoch, lease_of(node_id))):
                living.add(node_id)
        return living


class ProgressWatch:
    """A watchdog of a node's query, which progresses while its count of batches changes.

    Without a watchdog, a node with a hung query would own its partitions forever, because the
    process renews its lease. Thread-safe: one thread sets the query, others read its progress.
    Suspended time does not count (`AwakeClock`).
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
        """Watch the query with this count of batches from now on, None for no query."""
        with self._lock:
            self._count = count
            self._seen = 0 if count is None else count()
            self._since = self._clock()
            self._has_got_on = False

    def stuck_s(self) -> float:
        """Return the seconds since the query's last progress; 0 without a query."""
        with self._lock:
            if self._count is None:
                return 0.0
            now, count = self._clock(), self._count()
            if count != self._seen:
                self._seen, self._since, self._has_got_on = count, now, True
            return now - self._since

    def is_progressing(self) -> bool:
        """Return whether the query has progressed within the timeout. True without a query."""
        return self.stuck_s() <= self._timeout_s

    def is_hung(self) -> bool:
        """Return whether the query must be abandoned. Other nodes may take over long before.

        A first batch may take `FIRST_BATCH_S`, because a restarted query would only wait again.
        """
        stuck_s = self.stuck_s()
        shortest_s = 0.0 if self._has_got_on else FIRST_BATCH_S
        return stuck_s > max(self._timeout_s, shortest_s)


class LeaseRenewal:
    """The renewal of this node's lease by a thread: at once, then four times per `lease_ms`.

    The lease is not renewed while `is_progressing` returns False, so that other nodes fence this
    node and take over its partitions.
    """

    def __init__(
        self,
        root: str,
        node_id: int,
        lease_ms: int,
        clock: Callable[[], int] = clock_ms,
        is_progressing: Callable[[], bool] = lambda: True,
    ) -> None:
        self._gets_on = is_progressing
        self._appender = Appender(table_uri(root, COORDINATORS))
        self._app_id = lease_app_id(node_id)
        self._clock = clock
        self._is_said = False
        self._renewing = threading.Lock()
        self.renew()
        wait_s = renewal_interval_s(lease_ms)
        self._renewals = background.repeat("lease", wait_s, self._try_to_renew)

    def stop(self) -> None:
        """Stop renewing the lease."""
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
            # If renewals keep failing, other nodes fence this node and take over its partitions.
            log.warning("the lease was not renewed: %s", error)

    def renew(self) -> None:
        """Renew the lease now. Thread-safe. Raises DeltaError, OSError and Failure."""
        # An appender is not thread-safe: two threads would count one commit twice, and continue
        # after the log's end.
        with self._renewing:
            renew(self._appender, self._app_id, self._clock())
