"""Consumers and their coordinator in one process, on a virtual clock.

    world = World(topics={"t": 3})
    a, b = world.member("a"), world.member("b")
    world.run(10_000)
    assert a.owned | b.owned == world.partitions("t")

Requests and answers take LATENCY_MS each way; `lost` decides which get lost. A member polls every
POLL_EVERY_MS as long as `polls` is true; a member that is not `alive` does nothing any more.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

from group_coordinator.coordinator.consumer.consumer_coordinator import ConsumerCoordinator
from group_coordinator.coordinator.consumer.consumer_errors import ConsumerError
from group_coordinator.coordinator.consumer.consumer_settings import parse_settings
from group_coordinator.coordinator.consumer.events import (
    AssignPartitions,
    CallAssignor,
    CommitDone,
    Event,
    LosePartitions,
    RevokePartitions,
)
from group_coordinator.coordinator.consumer.member_state import MemberState
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.schemas.messages import RequestEvent, Response
from tests.context import Call, Context

GROUP = "groupId"
LATENCY_MS = 5
POLL_EVERY_MS = 100
SETTINGS: dict[str, Any] = {
    "group.id": GROUP,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
    "max.poll.interval.ms": 10_000,
    "request.timeout.ms": 3_000,
    "auto.commit.interval.ms": 1_000,
    "auto.offset.reset": "earliest",
}


class Member:
    """A process with one consumer: its user's thread and its background thread."""

    def __init__(self, world: World, name: str, settings: dict[str, Any]) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.polls = True
        self.poll_at = world.now
        self.history: list[tuple[int, Event]] = []
        self.errors: list[Exception] = []
        self.requests: list[RequestEvent] = []
        self.owned: set[TopicPartition] = set()
        ids = count(1)
        self.consumer = ConsumerCoordinator(
            parse_settings({**SETTINGS, "client.id": name, **settings}),
            new_request_id=lambda: f"{name}-{next(ids)}",
            jitter=lambda: 0.5,
            now=world.now,
        )
        self.consumer.update_topics(world.topics)

    # --- what the user sees ---------------------------------------------------------------------

    def told(self, *kinds: type, since: int = 0) -> list[Any]:
        """The events of these kinds, in order."""
        kinds = kinds or (AssignPartitions, RevokePartitions, LosePartitions)
        return [event for at, event in self.history if at >= since and isinstance(event, kinds)]

    @property
    def is_settled(self) -> bool:
        """Whether the member is in the group and has nothing to do about it."""
        return self.consumer.state is MemberState.STABLE and not self.consumer.is_rejoining

    # --- what the process does ------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        """When it wants to run."""
        if not self.alive or self.consumer.closed:
            return None
        times = [self.consumer.tick_deadline]
        if self.polls:
            times += [self.poll_at, self.consumer.poll_deadline]
        return min((t for t in times if t is not None), default=None)

    def run(self) -> None:
        """Both threads, as far as they can go now."""
        if not self.alive or self.consumer.closed:
            return
        self.consumer.tick(self.world.now)
        if self.polls:
            self.poll()
        self.send()

    def poll(self) -> None:
        """The user's thread polls until it must wait."""
        self.poll_at = self.world.now + POLL_EVERY_MS
        try:
            while (event := self.consumer.poll(self.world.now)) is not None:
                self.history.append((self.world.now, event))
                if isinstance(event, CommitDone):
                    continue
                try:
                    if isinstance(event, CallAssignor):
                        event.run()
                    self._listen(event)
                finally:
                    self.consumer.callback_done()
        # LookupError is that of tests' own assignors.
        except (ConsumerError, LookupError) as error:
            self.errors.append(error)
        for one in list(self.consumer.subscription.awaiting_reset()):
            self.consumer.subscription.seek(one, 0)

    def _listen(self, event: Event) -> None:
        if isinstance(event, AssignPartitions):
            assert not self.owned & set(event.partitions), "assigned twice"
            self.owned |= set(event.partitions)
            self.world.claim(self, event.generation_id)
        elif isinstance(event, (RevokePartitions, LosePartitions)):
            assert set(event.partitions) <= self.owned, "not owned"
            self.owned -= set(event.partitions)

    def send(self) -> None:
        """What the consumer wants sent is on its way."""
        for request in self.consumer.take_requests():
            self.requests.append(request)
            self.world.post(lambda request=request: self.world.deliver(request, self))

    def receive(self, response: Response) -> None:
        """An answer has arrived."""
        if self.alive:
            self.consumer.response(self.world.now, response)
            self.run()

    def crash(self) -> None:
        """The process is gone, without a word."""
        self.alive = False

    def close(self) -> None:
        """The user closes the consumer."""
        self.consumer.close(self.world.now, timeout_ms=3_000)
        self.run()


class World(Context):
    """The coordinator with its log, the wires, and the members."""

    def __init__(self, topics: dict[str, int], **settings: Any) -> None:
        super().__init__(GROUP, **{"group_max_size": 100, **settings})
        self.topics = dict(topics)
        self.members_made: list[Member] = []
        self.lost: Callable[[RequestEvent | Response], bool] = lambda _: False
        self._senders: dict[str, Member] = {}
        self._wire: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._claims: dict[tuple[int, TopicPartition], str] = {}

    def member(self, name: str, *, topics: Any = ("t",), **settings: Any) -> Member:
        """Start a process with a subscribed consumer; settings with `_` for `.`."""
        named = {key.replace("_", "."): value for key, value in settings.items()}
        member = Member(self, name, named)
        member.consumer.subscribe(topics)
        self.members_made.append(member)
        return member

    def update_topics(self, topics: dict[str, int]) -> None:
        """Change the catalogue, for all members at once."""
        self.topics = dict(topics)
        for member in self.members_made:
            member.consumer.update_topics(topics)

    def partitions(self, *topics: str) -> set[TopicPartition]:
        """All partitions of topics; of all topics, if none is named."""
        return {
            TopicPartition(name, number)
            for name in topics or self.topics
            for number in range(self.topics[name])
        }

    @property
    def living(self) -> list[Member]:
        """Return the members of running processes."""
        return [one for one in self.members_made if one.alive and not one.consumer.closed]

    def claim(self, member: Member, generation_id: int) -> None:
        """Note that a member owns its assignment: no other member may, in that generation.

        A static member that restarts continues in its generation and membership.
        """
        seat = member.consumer.settings.group_instance_id or member.name
        for partition in member.consumer.assignment:
            owner = self._claims.setdefault((generation_id, partition), seat)
            assert owner == seat, f"{partition}: {owner} and {seat} in generation {generation_id}"

    # --- wires ----------------------------------------------------------------------------------

    def post(self, arrive: Callable[[], None]) -> None:
        """Something is on the wire."""
        heapq.heappush(self._wire, (self.now + LATENCY_MS, next(self._order), arrive))

    def deliver(self, request: RequestEvent, sender: Member) -> None:
        """A request arrives at the coordinator."""
        if self.lost(request):
            return
        self._senders[request.request_id] = sender
        self.calls[request.request_id] = Call(request)
        self.decide(request)

    def _take(self, decision: Decision) -> None:
        super()._take(decision)
        for response in decision.responses:
            if not self.lost(response):
                sender = self._senders[response.request_id]
                self.post(lambda r=response, to=sender: to.receive(r))

    # --- the clock ------------------------------------------------------------------------------

    def run(self, ms: int) -> None:
        """Let so much time pass; everything happens at its own time."""
        until = self.now + ms
        spins = 0
        while True:
            times = [time for one in self.members_made if (time := one.next_at) is not None]
            if self._wire:
                times.append(self._wire[0][0])
            if self.deadline is not None:
                times.append(self.deadline)
            at = min(times, default=None)
            if at is None or at > until:
                break
            spins = 0 if at > self.now else spins + 1
            assert spins < 100, "a deadline passes, and nothing comes of it"
            self.now = max(self.now, at)
            self._happen()
        self.now = until

    def _happen(self) -> None:
        while self._wire and self._wire[0][0] <= self.now:
            heapq.heappop(self._wire)[2]()
        self.advance(0)
        for member in self.members_made:
            next_at = member.next_at
            if next_at is not None and next_at <= self.now:
                member.run()
