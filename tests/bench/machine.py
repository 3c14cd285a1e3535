"""Throughput of the pure state machine on one core, without Spark.

Each load goes through `BatchMachine.process`, the call that Spark's worker makes, from the events'
JSON to the state's bytes, and its output is encoded as in `pipeline/stream/stateful.py`. The floor
in the same run decodes the same events, encodes the same outputs, copies the states and decides
nothing. Seconds are the process's CPU time, so other programs on the computer do not count.

To profile: python -m cProfile -s tottime -m tests.bench machine
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
from msgspec import Struct

from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group.batch import BatchSettings, GroupOutput
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
    RequestEvent,
    SyncGroupAssignment,
)
from tests.bench.report import Aim, Column, Report
from tests.support.fleet import Member

# Partitions that one commit or one fetch names.
PARTITIONS = 10
TOPIC = "t"
# The time of the first batch, ms; any will do. Batches are `_BATCH_MS` apart.
START = 1_800_000_000_000
_BATCH_MS = 200

_json = msgspec.json.Encoder().encode
_encode = msgspec.msgpack.Encoder().encode
_decode_event = msgspec.json.Decoder(RequestEvent).decode
_decode_output = msgspec.msgpack.Decoder(GroupOutput | None).decode


class Load(Struct):
    """The figures of a load; times are of one core.

    `requests` is the number of requests of one group and batch, which Spark passes at once.
    `state_bytes` is the size of a group's state at the end. `ratio` is a request's time over the
    floor's.
    """

    name: Annotated[str, Column("load")]
    groups: Annotated[int, Column("groups", ",.0f")]
    members: Annotated[int, Column("members")]
    requests: Annotated[int, Column("a batch")]
    per_second: Annotated[float, Column("requests/s", ",.0f")]
    floor_per_second: Annotated[float, Column("floor", ",.0f")]
    ratio: Annotated[float, Column("ratio", ".1f")]
    state_bytes: Annotated[int, Column("state bytes", ",.0f")]


class Sample(Struct):
    """The requests of a load so far, and the seconds that machine and floor took for them."""

    requests: int = 0
    seconds: float = 0.0
    floor_seconds: float = 0.0

    @property
    def rates(self) -> tuple[float, float, float]:
        """Requests a second of the machine and of the floor, and the second over the first."""
        machine, floor = self.requests / self.seconds, self.requests / self.floor_seconds
        return machine, floor, floor / machine

    def add(self, other: Sample) -> None:
        """Count another sample in."""
        self.requests += other.requests
        self.seconds += other.seconds
        self.floor_seconds += other.floor_seconds


class MachineReport(Report):
    """The figures of all loads."""

    loads: list[Load]

    def rows(self) -> list[Load]:
        """Every load."""
        return self.loads

    def aims(self) -> list[Aim]:
        """Return the aim of the first load's requests a second."""
        first = self.loads[0]
        return [Aim(first.name, "a second", 200_000, first.per_second, most=False)]


class MachineGroup:
    """One group of the pure machine: its state and its members."""

    def __init__(self, machine: BatchMachine, group_id: str, members: int) -> None:
        self.machine = machine
        self.group_id = group_id
        self.members = [Member(group_id, f"member-{i}") for i in range(members)]
        self.state: bytes | None = None
        self._by_request: dict[str, Member] = {}

    def joins(self, again: bool) -> list[str]:
        """Return the joins of all members."""
        return self.texts((member, member.join(again)) for member in self.members)

    def syncs(self) -> list[str]:
        """Return the syncs of all members, the leader's with the assignments."""
        first = self.members[0]
        everything = tuple(SyncGroupAssignment(m.member_id, b"\x00" * 32) for m in self.members)
        return self.texts((m, m.sync(everything if m is first else ())) for m in self.members)

    def heartbeats(self, each: int = 1) -> list[str]:
        """Return `each` heartbeats of every member."""
        return self.texts((m, m.heartbeat()) for _ in range(each) for m in self.members)

    def commits(self, offset: int) -> list[str]:
        """Return a commit of every member, each for different partitions."""
        return self.texts(
            (member, member.commit(commit_body(member, TOPIC, PARTITIONS * i, offset)))
            for i, member in enumerate(self.members)
        )

    def fetches(self) -> list[str]:
        """Return a fetch by every member of its committed offsets."""
        return self.texts(
            (member, member.fetch(_fetch(PARTITIONS * i))) for i, member in enumerate(self.members)
        )

    def texts(self, events: Iterable[tuple[Member, RequestEvent]]) -> list[str]:
        """Return the events as JSON; `take` passes each response to its member."""
        texts = []
        for member, event in events:
            self._by_request[event.request_id] = member
            texts.append(_json(event).decode())
        return texts

    def take(self, output: GroupOutput | None) -> None:
        """Take member ids and generations from responses. Raises Failure on an error."""
        for response in [] if output is None else output.responses:
            member = self._by_request.pop(response.request_id)
            if response.error_code:
                raise Failure(f"{response.request_id} was answered {response.error}")
            if response.join_group is not None:
                member.member_id = response.join_group.member_id
                member.generation = response.join_group.generation_id

    def form(self, now: int) -> None:
        """Let all members join and sync. The first joins alone, and again with the others."""
        first, *others = self.members
        steps: list[Callable[[], list[str]]] = [
            lambda: self.texts([(first, first.join())]),
            lambda: self.texts([*((m, m.join()) for m in others), (first, first.join(again=True))]),
            self.syncs,
        ]
        for step in steps:
            result = self.machine.process(self.group_id, self.state, step(), now)
            self.state = result.state
            self.take(result.output)


def commit_body(member: Member, topic: str, first: int, offset: int) -> OffsetCommitRequest:
    """Return a commit of `PARTITIONS` partitions of one topic, from the first one on."""
    partitions = tuple(OffsetCommitPartition(first + i, offset) for i in range(PARTITIONS))
    return OffsetCommitRequest(
        generation_id=member.generation,
        member_id=member.member_id,
        topics=(OffsetCommitTopic(topic, partitions),),
    )


def _fetch(first: int) -> OffsetFetchRequest:
    partitions = tuple(range(first, first + PARTITIONS))
    return OffsetFetchRequest((OffsetFetchTopic(TOPIC, partitions),))


def make_machine() -> BatchMachine:
    """Return a machine that lets groups form without a delay."""
    return BatchMachine(BatchSettings(config=parse_config({"group.initial.rebalance.delay.ms": 0})))


# The requests of a group in one batch. A round's answers are known before the next round.
Round = Callable[[MachineGroup, int], list[str]]


class Plan(Struct):
    """A load: numbers of groups and members, and the requests."""

    name: str
    groups: int
    members: int
    rounds: list[Round]
    set_up: list[Round] = []


PLANS = [
    Plan("heartbeats, 5 a member", 100, 100, [lambda group, _: group.heartbeats(5)]),
    Plan("heartbeats, 1 a member", 100, 100, [lambda group, _: group.heartbeats()]),
    Plan("heartbeats, small groups", 2_000, 1, [lambda group, _: group.heartbeats()]),
    Plan(
        "joins and syncs",
        20,
        100,
        [lambda group, _: group.joins(again=True), lambda group, _: group.syncs()],
    ),
    Plan("commits", 20, 100, [lambda group, batch: group.commits(batch)]),
    Plan(
        "fetches",
        20,
        100,
        [lambda group, _: group.fetches()],
        set_up=[lambda group, batch: group.commits(batch)],
    ),
]


def bench_machine(batches: int, scale: int, say: Callable[[str], None]) -> MachineReport:
    """Measure every load over `batches` batches, after a first one that does not count.

    `scale` divides the number of groups: 1 is the full size. `say` reports progress.
    """
    loads = []
    for plan in PLANS:
        groups = max(1, plan.groups // scale)
        say(f"machine: {plan.name}, {groups:,} groups of {plan.members}")
        loads.append(_measure(plan, groups, batches))
    return MachineReport(loads)


def _measure(plan: Plan, groups: int, batches: int) -> Load:
    machine = make_machine()
    fleet = [MachineGroup(machine, f"bench-{i}", plan.members) for i in range(groups)]
    for group in fleet:
        group.form(START)
    for ask in plan.set_up:
        run_batch(machine, fleet, ask, 0)
    total = Sample()
    with standing_objects_frozen():
        for batch in range(1 + batches):
            for ask in plan.rounds:
                done = run_batch(machine, fleet, ask, batch)
                if batch:
                    total.add(done)
    return Load(
        plan.name,
        groups,
        plan.members,
        done.requests // groups,
        *total.rates,
        sum(len(group.state or b"") for group in fleet) // groups,
    )


@contextmanager
def standing_objects_frozen() -> Iterator[None]:
    """Exempt all present objects from garbage collection, as Spark's worker does.

    Where the program has exempted objects before, all stay exempted.
    """
    were_frozen = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not were_frozen:
            gc.unfreeze()


def run_batch(machine: BatchMachine, fleet: list[MachineGroup], ask: Round, batch: int) -> Sample:
    """Give a batch to the machine, and then the same batch to the floor."""
    texts = [ask(group, batch) for group in fleet]
    now = START + batch * _BATCH_MS
    gc.collect()
    outputs: list[bytes] = []
    began = time.process_time()
    for group, events in zip(fleet, texts, strict=True):
        result = machine.process(group.group_id, group.state, events, now)
        group.state = result.state
        outputs.append(_encode(result.output))
    seconds = time.process_time() - began
    decoded = [_decode_output(output) for output in outputs]
    began = time.process_time()
    for group, events, output in zip(fleet, texts, decoded, strict=True):
        for text in events:
            _decode_event(text)
        _encode(output)
        bytearray(group.state or b"")
    floor_seconds = time.process_time() - began
    for group, output in zip(fleet, decoded, strict=True):
        group.take(output)
    return Sample(sum(map(len, texts)), seconds, floor_seconds)
