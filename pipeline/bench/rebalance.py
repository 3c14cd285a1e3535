"""How long a group takes to become Stable: when all its members join, and when one more joins.

Kafka's broker is measured first, then the coordinator, each with one group after the other. Members
do what clients do: they join, sync what the leader assigned, and join again when they hear of a
rebalance. But they do not wait between heartbeats: a member of a group that is not yet Stable sends
the next heartbeat as soon as the last one is answered. So the figures show the coordinator's time
and not the heartbeat interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from msgspec import Struct, structs

from group_coordinator.pipeline.bench.broker import broker
from group_coordinator.pipeline.bench.fleet import Fleet, FleetPeer, Member
from group_coordinator.pipeline.bench.kafka_libs import ADVICE, kafka_libs
from group_coordinator.pipeline.bench.peer import NOT_YET, Peer
from group_coordinator.pipeline.bench.report import Aim, Column, Report
from group_coordinator.pipeline.bench.running import COORDINATOR, running
from group_coordinator.pipeline.bench.wire import BrokerPeer, await_coordinator
from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.errors import ERROR_NAMES, ErrorCode
from group_coordinator.schemas.messages import RequestEvent, SyncGroupAssignment

MEMBERS = 100
# Groups of each machine that do not count, because the JVM compiles meanwhile.
WARM_UPS = 10
_TIMEOUT_S = 120.0
_ASSIGNMENT = b"\x00" * 32


class RebalanceFigures(Struct):
    """The seconds and batches that one machine took: medians of all rounds.

    Batches are those that answered a member; the broker has none: 0.
    """

    machine: Annotated[str, Column("machine")]
    members: Annotated[int, Column("members")]
    rounds: int
    first_join_s: Annotated[float, Column("from nothing, s", ".3f")]
    first_join_batches: Annotated[float, Column("batches from nothing", ".0f", zero=False)]
    one_more_s: Annotated[float, Column("one more, s", ".3f")]
    one_more_batches: Annotated[float, Column("batches for one more", ".0f", zero=False)]


class Passage(Struct):
    """One rebalance: its seconds, and the batches in which it was answered."""

    seconds: float
    batches: int


class RebalanceReport(Report):
    """Both machines; `kafka` is None where no folder of its jars is named."""

    coordinator: RebalanceFigures
    kafka: RebalanceFigures | None

    def rows(self) -> list[RebalanceFigures]:
        """The machines that were measured."""
        return [self.coordinator, *([] if self.kafka is None else [self.kafka])]

    def ratios(self) -> dict[str, dict[str, float]]:
        """The coordinator over the broker."""
        ours, kafka = self.coordinator, self.kafka
        if kafka is None:
            return {}
        first, one_more = ours.first_join_s / kafka.first_join_s, ours.one_more_s / kafka.one_more_s
        return {"ratio": {"from nothing, s": first, "one more, s": one_more}}

    def aims(self) -> list[Aim]:
        """As few batches as the protocol has steps."""
        return [
            Aim("from nothing", "batches", 4, self.coordinator.first_join_batches),
            Aim("one more", "batches", 4, self.coordinator.one_more_batches),
        ]


class Rebalance:
    """The members of groups that become Stable, and their requests."""

    def __init__(self, peer: Peer, members: list[Member]) -> None:
        self._peer = peer
        self._members = members
        self._waiting: dict[str, tuple[Member, RequestEvent]] = {}
        # The generation in which each member, by name, was last given its assignment.
        self._synced: dict[str, int] = {}
        self._out: list[RequestEvent] = []

    def run(self, newcomers: list[Member]) -> Passage:
        """Let the newcomers join, and the others notice, until all are Stable.

        Raises Failure on an error that is no part of a rebalance, and if it takes too long.
        """
        batches = set()
        began = time.perf_counter()
        for member in newcomers:
            self._ask(member, member.join())
        for member in self._members:
            if member not in newcomers:
                self._ask(member, member.heartbeat())
        while not self._is_stable():
            if time.perf_counter() - began > _TIMEOUT_S:
                raise Failure(f"no Stable group of {len(self._members)} after {_TIMEOUT_S:.0f} s")
            self._peer.send(self._out)
            self._out = []
            for row in self._peer.answers():
                member, event = self._waiting.pop(row["request_id"])
                self._take(member, event, row)
                batches.add(row["responded_at"])
        seconds = time.perf_counter() - began
        # The answers that are still to come are awaited, so that the peer's next user does not meet
        # them.
        while self._waiting.keys() - {event.request_id for event in self._out}:
            for row in self._peer.answers():
                del self._waiting[row["request_id"]]
        self._out = []
        self._waiting = {}
        return Passage(seconds, len(batches - {None}))

    def _is_stable(self) -> bool:
        generations: dict[str, int] = {}
        for member in self._members:
            known = generations.get(member.group_id, 0)
            generations[member.group_id] = max(known, member.generation)
        return all(
            self._synced.get(member.name) == generations[member.group_id]
            for member in self._members
        )

    def _ask(self, member: Member, event: RequestEvent) -> None:
        self._waiting[event.request_id] = (member, event)
        self._out.append(event)

    def _take(self, member: Member, event: RequestEvent, row: dict[str, Any]) -> None:
        code = row["error_code"]
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._ask(member, member.join(again=True))
        elif code in NOT_YET:
            self._ask(member, structs.replace(event, request_id=f"{event.request_id}+"))
        elif code != ErrorCode.NONE:
            raise Failure(
                f"{event.api} of {member.name} was answered {ERROR_NAMES.get(code, code)}"
            )
        elif event.api == "join_group":
            body = row["join_group"]
            member.member_id, member.generation = body["member_id"], body["generation_id"]
            everybody = body["members"] if body["leader"] == member.member_id else ()
            assignments = tuple(
                SyncGroupAssignment(each["member_id"], _ASSIGNMENT) for each in everybody
            )
            self._ask(member, member.sync(assignments))
        else:
            if event.api == "sync_group":
                self._synced[member.name] = member.generation
            self._ask(member, member.heartbeat())


def form(fleet: Fleet) -> None:
    """Let every group of a fleet that has yet to join become Stable. Raises Failure."""
    Rebalance(FleetPeer(fleet), fleet.members).run(fleet.members)


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
