"""Time until a group is Stable: after all its members join, and after one more joins.

Kafka's broker is measured first, then the coordinator, each with one group after the other. The
members are those of `tests.support.rebalance`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated

from msgspec import Struct

from tests.bench.report import Aim, Column, Report
from tests.bench.running import COORDINATOR, running
from tests.support.broker import broker
from tests.support.fleet import Fleet, FleetPeer, Member
from tests.support.kafka_libs import ADVICE, kafka_libs
from tests.support.peer import Peer
from tests.support.rebalance import Rebalance
from tests.support.wire import BrokerPeer, await_coordinator

MEMBERS = 100
# Groups of each machine that do not count, because the JVM compiles meanwhile.
WARM_UPS = 10


class RebalanceFigures(Struct):
    """The seconds and batches that one machine took: medians of all rounds.

    Batches are those that answered a member; the broker has none: 0.
    """

    machine: Annotated[str, Column("machine")]
    members: Annotated[int, Column("members")]
    rounds: int
    first_join_s: Annotated[float, Column("from nothing, s", ".3f")]
    first_join_batches: Annotated[float, Column("batches from nothing", ".0f", absent=0)]
    one_more_s: Annotated[float, Column("one more, s", ".3f")]
    one_more_batches: Annotated[float, Column("batches for one more", ".0f", absent=0)]


class RebalanceReport(Report):
    """Both machines; `kafka` is None where no folder of its jars is named."""

    coordinator: RebalanceFigures
    kafka: RebalanceFigures | None

    def rows(self) -> list[RebalanceFigures]:
        """Return the machines that were measured."""
        return [self.coordinator, *([] if self.kafka is None else [self.kafka])]

    def ratios(self) -> dict[str, dict[str, float]]:
        """Return the coordinator's figures divided by the broker's."""
        ours, kafka = self.coordinator, self.kafka
        if kafka is None:
            return {}
        first, one_more = ours.first_join_s / kafka.first_join_s, ours.one_more_s / kafka.one_more_s
        return {"ratio": {"from nothing, s": first, "one more, s": one_more}}

    def aims(self) -> list[Aim]:
        """Return the aims: as few batches as the protocol has steps."""
        return [
            Aim("from nothing", "batches", 4, self.coordinator.first_join_batches),
            Aim("one more", "batches", 4, self.coordinator.one_more_batches),
        ]


def bench_rebalance(
    rounds: int,
    libs: Path | None,
    say: Callable[[str], None],
    members: int = MEMBERS,
    warm_ups: int = WARM_UPS,
) -> RebalanceReport:
    """Measure each machine `rounds` times; `say` hears of progress. Raises Failure."""
    groups = [
        [Member(f"rebalance-{number}", f"member-{number}-{i}") for i in range(members + 1)]
        for number in range(warm_ups + rounds)
    ]
    kafka = None
    if libs is None:
        say(ADVICE)
    else:
        say(f"kafka, {len(groups)} groups of {members}")
        with broker(kafka_libs(libs, say)) as running_broker:
            await_coordinator(running_broker, groups[0][0].group_id)
            with BrokerPeer(running_broker, groups) as peer:
                kafka = measure("kafka", peer, groups, warm_ups)
    say(f"coordinator, {len(groups)} groups of {members}")
    with running(COORDINATOR) as (_, root):
        coordinator = measure(COORDINATOR, FleetPeer(Fleet(root, 0, 0)), groups, warm_ups)
    return RebalanceReport(coordinator, kafka)


def measure(
    machine: str, peer: Peer, groups: list[list[Member]], warm_ups: int
) -> RebalanceFigures:
    """Let all but the last member of each group join, then the last one.

    The first `warm_ups` groups do not count."""
    first, more = [], []
    for group in groups:
        *founders, newcomer = group
        first.append(Rebalance(peer, founders).run(founders))
        more.append(Rebalance(peer, group).run([newcomer]))
    first, more = first[warm_ups:], more[warm_ups:]
    return RebalanceFigures(
        machine,
        len(founders),
        len(first),
        median(passage.seconds for passage in first),
        median(passage.batches for passage in first),
        median(passage.seconds for passage in more),
        median(passage.batches for passage in more),
    )
