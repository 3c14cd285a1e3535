"""Number of members that a root holds: members are added until a response is late.

The members are groups on plain sockets (`tests.bench.socket_fleet`), connected to one gateway and
one coordinator, which run on the same cores as the driver. A number of members is held if each
heartbeat of a stretch is answered within `LATE_S` and without an error. The limit is the same for
every heartbeat interval. With long intervals a response just before the next heartbeat would be no
proof, because a lagging coordinator could give it.

With long intervals a micro-batch has fewer requests of each group, but still reads and writes the
group's state. So a request costs more than with short intervals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Annotated

from msgspec import Struct

from group_coordinator.pipeline.errors import Failure
from tests.bench.cpu import CpuCounter
from tests.bench.paced import LEAST_ANSWERS
from tests.bench.report import Column, Report
from tests.bench.running import COORDINATOR, running, serving
from tests.bench.socket_fleet import SocketFleet
from tests.support.broker import HOST
from tests.support.fleet import groups_of

# Members of a group.
OF_GROUP = 100
STEP = 10_000
MOST = 1 << 20
LATE_S = 3.0
SECONDS = 20.0
# Intervals of heartbeats, s.
HEARTBEATS_S = (3.0, 10.0, 30.0)
# The connections of those that are held; as many members join at once.
_CONNECTIONS = 1_000
_SETTLE_S = 6.0
# The driver is the limit if it lags its own schedule by this share of `LATE_S`.
_LAG = 0.1


class HeldLoad(Struct, frozen=True):
    """Members that heartbeat every so often; `step` more at a time, each time for `seconds`.

    If the interval is longer than that, for one interval.
    """

    heartbeat_s: float = 3.0
    step: int = STEP
    most: int = MOST
    seconds: float = SECONDS

    @property
    def session_ms(self) -> int:
        """Three heartbeats and a third, and at least Kafka's default."""
        return max(45_000, round(self.heartbeat_s * 10_000 / 3))


class Held(Struct):
    """The most members that were held; -1: none were. `limit` is the end of the search.

    CPU in us a heartbeat: the gateway's, and the coordinator's with its JVM and Python workers.
    """

    heartbeat_s: Annotated[float, Column("heartbeat s", "g")]
    session_s: Annotated[float, Column("session s", "g")]
    members: Annotated[int, Column("members held", ",.0f")] = -1
    per_second: Annotated[float, Column("heartbeats/s", ",.0f")] = -1.0
    p50_ms: Annotated[float, Column("p50 ms", ",.0f")] = -1.0
    p99_ms: Annotated[float, Column("p99 ms", ",.0f")] = -1.0
    gateway_us: Annotated[float, Column("gateway's CPU a heartbeat, us", ".0f")] = -1.0
    coordinator_us: Annotated[float, Column("coordinator's", ".0f")] = -1.0
    limit: Annotated[str, Column("limit")] = ""


class HeldReport(Report):
    """Each interval of heartbeats."""

    figures: list[Held]

    def rows(self) -> list[Held]:
        """Return the rows, the shortest interval first."""
        return self.figures


def bench_held(loads: Sequence[HeldLoad], warm_up: float, say: Callable[[str], None]) -> HeldReport:
    """Measure each load with a new coordinator; `say` reports progress. Raises Failure.

    `warm_up`, s, is the time for which the first step heartbeats without being measured.
    """
    figures = []
    for load in loads:
        say(f"held: starting a coordinator and a gateway, heartbeats every {load.heartbeat_s:g} s")
        with running(COORDINATOR) as (process, root), serving(root) as (port, gateway):
            figures.append(hold("held", port, gateway, load, say, process.pid, warm_up))
    return HeldReport(figures)


def hold(
    name: str,
    port: int,
    server: int,
    load: HeldLoad,
    say: Callable[[str], None],
    coordinator: int | None = None,
    warm_up: float = 0.0,
) -> Held:
    """Add members to those of a server until not all of them are held.

    `server` and `coordinator` are process ids. `name` is the prefix of groups and of the progress
    for `say`. No error is raised: the figures' `limit` is the end of the search.
    """
    found = Held(load.heartbeat_s, load.session_ms / 1000)
    seconds = max(load.seconds, load.heartbeat_s)
    settle_s = min(max(_SETTLE_S, load.heartbeat_s), seconds)
    most = load.most // OF_GROUP * OF_GROUP
    count = min(load.step, most)
    rest_s = max(settle_s, warm_up)
    with SocketFleet(HOST, port, _CONNECTIONS) as sockets:
        while True:
            say(f"{name}: {count - len(sockets.members):,} members join")
            try:
                _grow(sockets, name, count, load)
                sockets.beat(rest_s, load.heartbeat_s)
                rest_s = settle_s
                of_server = CpuCounter([server])
                of_coordinator = CpuCounter([] if coordinator is None else [coordinator])
                driver = time.process_time()
                beaten = sockets.beat(seconds, load.heartbeat_s, LATE_S)
                driver = (time.process_time() - driver) / seconds
                server_s, coordinator_s = of_server.used().total_s, of_coordinator.used().total_s
                if len(beaten.times) < LEAST_ANSWERS:
                    raise Failure(f"only {len(beaten.times)} answers")
            except (Failure, OSError) as error:
                found.limit = f"{count:,}: {error}"
                return found
            made = len(sockets.members)
            p50, p99 = 1000 * median(beaten.times), 1000 * quantiles(beaten.times, n=100)[98]
            cores = f"{server_s / seconds:.2f} and {coordinator_s / seconds:.2f} cores"
            say(
                f"{name}, {made:,} members: p50 {p50:.0f} ms, p99 {p99:.0f} ms, {beaten.late} "
                f"late, {beaten.errors} errors, {cores}, driver {driver:.2f}"
            )
            if beaten.errors or beaten.late:
                driven = beaten.lag_p99 > _LAG * LATE_S
                why = "the driver" if driven else f"{beaten.late} late, {beaten.errors} errors"
                found.limit = f"{made:,}: {why}"
                return found
            found.members, found.p50_ms, found.p99_ms = made, p50, p99
            found.per_second = len(beaten.times) / seconds
            found.gateway_us = 1e6 * server_s / len(beaten.times)
            found.coordinator_us = 1e6 * coordinator_s / len(beaten.times)
            if made >= most:
                found.limit = "as many as were asked"
                return found
            count = min(made + load.step, most)


def _grow(sockets: SocketFleet, name: str, count: int, load: HeldLoad) -> None:
    """Let members join until there are `count`. Raises Failure."""
    numbers = range(len(sockets.members) // OF_GROUP, count // OF_GROUP)
    groups = groups_of(f"{name}-held", numbers, OF_GROUP, load.session_ms)
    # Only some join at a time. The others heartbeat in between, because their sessions would
    # expire.
    began, at_once = time.monotonic(), _CONNECTIONS // OF_GROUP
    for at in range(0, len(groups), at_once):
        sockets.grow(groups[at : at + at_once])
        if time.monotonic() - began > load.session_ms / 1000 / 3:
            sockets.beat(load.heartbeat_s, load.heartbeat_s)
            began = time.monotonic()
