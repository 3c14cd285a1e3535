"""Members that are real consumers: `coordinator.consumer` decides; the world carries requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_coordinator.coordinator.consumer.consumer_coordinator import ConsumerCoordinator
from group_coordinator.coordinator.consumer.consumer_errors import ConsumerError
from group_coordinator.coordinator.consumer.consumer_settings import parse_settings
from group_coordinator.coordinator.consumer.events import AssignPartitions, CallAssignor, CommitDone
from group_coordinator.coordinator.consumer.subscription_state import OffsetAndMetadata
from group_coordinator.pipeline.clock import monotonic
from tests.trials.simulation.promises import ONE_MEMBER
from tests.trials.simulation.workload import (
    TOPIC,
    TOPIC_PARTITIONS,
    Client,
    Offsets,
)

if TYPE_CHECKING:
    from group_coordinator.schemas.messages import Response
    from tests.trials.simulation.clients import ClientProcess

_STEP_MS = 200.0


class Assignments:
    """The assigned partitions of all groups, by generation."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, int, object], str] = {}

    def assign(self, client: Client, generation: int, partition: object, member_id: str) -> None:
        """Check that the partition has no other assignee in this generation."""
        world = client.home.world
        world.check(ONE_MEMBER)
        place = (client.group_id, generation, partition)
        other = self._members.setdefault(place, member_id)
        if other != member_id:
            world.violate(
                ONE_MEMBER,
                f"{partition} of {client.group_id!r} is {other}'s and {member_id}'s in generation "
                f"{generation}",
            )


class ConsumerMember(Client):
    """A consumer of one group, with its user's thread: polls, and commits what it was assigned."""

    def __init__(
        self,
        home: ClientProcess,
        group_id: str,
        offsets: Offsets,
        assignments: Assignments,
        strategy: str,
    ) -> None:
        super().__init__(home, group_id, offsets)
        self._assignments = assignments
        settings = parse_settings(
            {
                "group.id": group_id,
                "client.id": "c",
                "session.timeout.ms": 3_000,
                "heartbeat.interval.ms": 1_000,
                "max.poll.interval.ms": 6_000,
                "request.timeout.ms": 5_000,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": [strategy],
            }
        )
        self._consumer = ConsumerCoordinator(settings, home.new_id, self.chance.random, _now_ms())
        self._consumer.subscribe([TOPIC])
        self._consumer.update_topics({TOPIC: TOPIC_PARTITIONS})
        self.after(self.chance.uniform(0, 1_500), self._step)

    def _step(self) -> None:
        consumer, now = self._consumer, _now_ms()
        try:
            while (event := consumer.poll(now)) is not None:
                if isinstance(event, CallAssignor):
                    event.run()
                if not isinstance(event, CommitDone):
                    consumer.callback_done()
                if isinstance(event, AssignPartitions):
                    self._assigned(event.generation_id)
        # An error that a user must handle; this user polls again.
        except ConsumerError as error:
            self.home.world.count(f"consumers told: {type(error).__name__}")
        if consumer.assignment and self.chance.random() < 0.2:
            partition = self.chance.choice(consumer.assignment)
            consumer.commit_async(now, {partition: OffsetAndMetadata(self.offsets.next())})
        self._send()
        self.after(_STEP_MS, self._step)

    def _assigned(self, generation: int) -> None:
        member_id = self._consumer.generation.member_id
        for partition in self._consumer.assignment:
            self._assignments.assign(self, generation, partition, member_id)

    def _send(self) -> None:
        for request in self._consumer.take_requests():
            self.home.send(request, self._answered)

    def _answered(self, response: Response) -> None:
        self._consumer.response(_now_ms(), response)
        self._send()


def _now_ms() -> int:
    return int(monotonic() * 1000)
