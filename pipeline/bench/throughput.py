"""Heartbeats a second: members that heartbeat as fast as they are answered.

Each member has one heartbeat under way. Kafka's broker, an empty function with the coordinator's
sources and sinks, and the coordinator are measured one after the other, each alone on the computer
but for the process that drives it. Requests are made beforehand, as bytes or as rows of a table.

With a fixed number of heartbeats under way, a machine that works in batches answers all of them
once a batch, so the batch's time decides, and more members raise the rate. The stages of a batch
also wait for each other: at 37,300 heartbeats/s on two cores, where a broker had 66,800, the
driver's Python took 15 % of a core, the source's 13 %, the worker's 26 %, the load's driver 11 %
and the JVM 66 %, a fifth of that its compiler. Twice the broker's rate would have been a batch of
10,000 in 75 ms, where deciding alone took 41 (`bench machine`, 1 a member) and the floor 160.
Profile: as in `pipeline.bench.answer`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from group_coordinator.pipeline.bench.broker import broker
from group_coordinator.pipeline.bench.fleet import Fleet, Member
from group_coordinator.pipeline.bench.flood import TableFlood
from group_coordinator.pipeline.bench.kafka_libs import ADVICE, kafka_libs
from group_coordinator.pipeline.bench.rebalance import Rebalance, form
from group_coordinator.pipeline.bench.report import Aim, Column, Report
from group_coordinator.pipeline.bench.running import COORDINATOR, FLOOR, WARM_UP_S, running
from group_coordinator.pipeline.bench.wire import BrokerPeer, Flood, await_coordinator

GROUPS = 100
MEMBERS = 100


class ThroughputFigures(Struct):
    """The heartbeats a second that one machine answered."""

    machine: Annotated[str, Column("machine")]
    groups: Annotated[int, Column("groups")]
    members: Annotated[int, Column("members of each")]
    per_second: Annotated[float, Column("heartbeats/s", ",.0f")]


class ThroughputReport(Report):
    """All machines; `kafka` is None where no folder of its jars is named."""

    floor: ThroughputFigures
    coordinator: ThroughputFigures
    kafka: ThroughputFigures | None

    def rows(self) -> list[ThroughputFigures]:
        """The machines that were measured."""
        return [self.floor, self.coordinator, *([] if self.kafka is None else [self.kafka])]

    def ratios(self) -> dict[str, dict[str, float]]:
        """The coordinator over each of the others."""
        return {
            f"coordinator over {other.machine}": {
                "heartbeats/s": self.coordinator.per_second / other.per_second
            }
            for other in (self.floor, self.kafka)
            if other is not None
        }

    def aims(self) -> list[Aim]:
        """Twice the broker's rate."""
        if self.kafka is None:
            return []
        share = self.coordinator.per_second / self.kafka.per_second
        return [Aim("heartbeats/s over the broker's", "", 2, share, most=False)]


def bench_throughput(
    seconds: float,
    libs: Path | None,
    say: Callable[[str], None],
    warm_up: float = WARM_UP_S,
    groups: int = GROUPS,
    members: int = MEMBERS,
) -> ThroughputReport:
    """Measure each machine for `seconds`; `say` hears of progress. Raises Failure."""
    kafka = None
    if libs is None:
        say(ADVICE)
    else:
        say(f"kafka, {seconds:.0f} s")
        kafka = kafka_throughput(kafka_libs(libs, say), seconds, warm_up, groups, members)
    floor, coordinator = (
        coordinator_throughput(name, seconds, warm_up, groups, members, say)
        for name in (FLOOR, COORDINATOR)
    )
    return ThroughputReport(floor, coordinator, kafka)


def kafka_throughput(
    libs: Path, seconds: float, warm_up: float, groups: int, members: int
) -> ThroughputFigures:
    """Measure a broker with the jars in `libs`."""
    fleet = [
        [Member(f"bench-{g}", f"member-{g}-{m}") for m in range(members)] for g in range(groups)
    ]
    with broker(libs) as node:
        await_coordinator(node, fleet[0][0].group_id)
        with BrokerPeer(node, fleet) as peer:
            for group in fleet:
                Rebalance(peer, group).run(group)
        with Flood(node, fleet) as flood:
            flood.run(warm_up)
            return ThroughputFigures("kafka", groups, members, flood.run(seconds))


def coordinator_throughput(
    machine: str,
    seconds: float,
    warm_up: float,
    groups: int,
    members: int,
    say: Callable[[str], None],
) -> ThroughputFigures:
    """Measure the COORDINATOR on Spark, or its FLOOR."""
    say(f"{machine}, {seconds:.0f} s")
    with running(machine) as (process, root):
        fleet = Fleet(root, groups, members, "throughput")
        if machine == COORDINATOR:
            form(fleet)
        flood = TableFlood(fleet)
        flood.run(warm_up, process)
        return ThroughputFigures(machine, groups, members, flood.run(seconds, process))
