"""Whatever happens to a group: when it is left alone, its members divide the partitions.

That no partition is owned by two members in one generation is watched by `World.claim`, at every
assignment on the way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from group_coordinator.coordinator.consumer.assignors import (
    ConsumerPartitionAssignor,
    CooperativeStickyAssignor,
    RangeAssignor,
)
from group_coordinator.coordinator.consumer.consumer_errors import InvalidAssignmentError
from group_coordinator.coordinator.consumer.protocol import Assignment, Subscription
from group_coordinator.coordinator.group.state import GroupState
from tests.coordinator.consumer.world import Member, World
from tests.examples import examples


class Own(ConsumerPartitionAssignor):
    """An assignor of a user's own: divides as one of Kafka's does, and fails as `fault` says."""

    name = "own"

    def __init__(self, like: type[ConsumerPartitionAssignor], fault: Callable[[], str]) -> None:
        self._like, self._fault = like(), fault
        self.protocols = like.protocols

    def assign(
        self, counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        given = self._like.assign(counts, subscriptions)
        fault = self._fault()
        if fault == "raises":
            raise LookupError("the user's own")
        if fault == "leaves out":
            given.popitem()
        if fault == "gives twice":
            everything = [one for each in given.values() for one in each.partitions]
            given |= {member: Assignment(tuple(everything * 2)) for member in given}
        return given


STRATEGIES = (
    "range",
    "cooperative-sticky",
    "sticky,roundrobin",
    "range,cooperative-sticky",
    RangeAssignor,
    CooperativeStickyAssignor,
)
# Longer than a session, the longest join, and the two rebalances that a handover may take.
QUIET_MS = 90_000
# How many members live at most.
MOST = 5
NUMBERS = st.integers(0, MOST - 1)
# What passes after each happening.
MS = st.integers(0, 15_000)


class Life(RuleBasedStateMachine):
    """A world and what may happen in it; `number` chooses among its members."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World({"t": 5, "u": 2})
        self.names = 0

    @initialize(strategy=st.sampled_from(STRATEGIES), seed=st.integers(0, 1_000))
    def begin(self, strategy: Any, seed: int) -> None:
        self.random = random.Random(seed)
        self.failing = True
        own = partial(Own, strategy, self._fault)
        self.has_own_assignor = not isinstance(strategy, str)
        self.strategy = [own] if self.has_own_assignor else strategy
        self._start()

    def _fault(self) -> str:
        faults = ("raises", "leaves out", "gives twice", "", "", "", "", "")
        return self.random.choice(faults) if self.failing else ""

    def _pick(self, number: int) -> Member:
        return self.world.living[number % len(self.world.living)]

    def _start(self, **options: str) -> None:
        self.names += 1
        self.world.member(
            f"member{self.names}",
            topics=["t", "u"],
            partition_assignment_strategy=self.strategy,
            **options,
        )

    # --- what happens -----------------------------------------------------------------------------

    @precondition(lambda self: len(self.world.living) < MOST)
    @rule(ms=MS)
    def join(self, ms: int) -> None:
        self._start()
        self.world.run(ms)

    @precondition(lambda self: len(self.world.living) < MOST)
    @rule(number=st.integers(0, 1), ms=MS)
    def join_static(self, number: int, ms: int) -> None:
        """A new process of a static member, in place of the one that runs, if one does."""
        instance = f"instance{number}"
        for one in self.world.living:
            if one.consumer.settings.group_instance_id == instance:
                one.crash()
        self._start(group_instance_id=instance)
        self.world.run(ms)

    @precondition(lambda self: self.world.living)
    @rule(number=NUMBERS, ms=MS)
    def crash(self, number: int, ms: int) -> None:
        self._pick(number).crash()
        self.world.run(ms)

    @precondition(lambda self: self.world.living)
    @rule(number=NUMBERS, ms=MS)
    def close(self, number: int, ms: int) -> None:
        self._pick(number).close()
        self.world.run(ms)

    @precondition(lambda self: self.world.living)
    @rule(number=NUMBERS, ms=MS)
    def stall(self, number: int, ms: int) -> None:
        """Block the user's thread, or release it; heartbeats continue."""
        one = self._pick(number)
        one.polls = not one.polls
        self.world.run(ms)

    @precondition(lambda self: self.world.living)
    @rule(number=NUMBERS, still=st.integers(0, 20_000), ms=MS)
    def stand_still(self, number: int, still: int, ms: int) -> None:
        """Suspend a whole process, or resume it, while all others continue."""
        one = self._pick(number)
        one.alive = False
        self.world.run(still)
        one.alive = True
        self.world.run(ms)

    @rule(share=st.sampled_from((0.0, 0.1, 0.5)), ms=MS)
    def lose(self, share: float, ms: int) -> None:
        """From now on, requests and answers get lost, or no longer."""
        self.world.lost = lambda _: self.random.random() < share
        self.world.run(ms)

    @precondition(lambda self: self.world.topics["t"] < 12)
    @rule(ms=MS)
    def add_partitions(self, ms: int) -> None:
        self.world.update_topics({**self.world.topics, "t": self.world.topics["t"] + 1})
        self.world.run(ms)

    @precondition(lambda self: self.world.group is not None and not self.has_own_assignor)
    @rule(ms=MS)
    def unload(self, ms: int) -> None:
        """The coordinator is restarted from its log.

        The log has a static member's new id only once the leader has synced: a restart before that,
        for which an assignor that fails leaves much time, fences the member, as in Kafka.
        """
        self.world.unload()
        self.world.load()
        self.world.run(ms)

    # --- what must be so --------------------------------------------------------------------------

    @invariant()
    def nobody_sees_an_error(self) -> None:
        """The only errors are those of its own assignor."""
        own = (InvalidAssignmentError, LookupError) if self.has_own_assignor else ()
        errors = [error for one in self.world.members_made for error in one.errors]
        assert not [error for error in errors if not isinstance(error, own)]

    def teardown(self) -> None:
        """Left alone, the living divide the partitions."""
        world = self.world
        world.lost = lambda _: False
        self.failing = False
        for one in world.living:
            one.polls = True
        world.run(QUIET_MS)
        if any(each.consumer.settings.group_instance_id for each in world.living):
            # A static leader that returns must not assign (KIP-814): partitions that were added
            # meanwhile are missed until the next change, as in Kafka.
            self.add_partitions(QUIET_MS)
        self.nobody_sees_an_error()
        living = world.living
        if not living:
            return
        assert world.state is GroupState.STABLE
        assert all(one.is_settled for one in living)
        assert world.group is not None
        generations = {one.consumer.generation.generation_id for one in living}
        assert generations == {world.group.generation_id}
        assert sorted(p for one in living for p in one.owned) == sorted(world.partitions())
        assert all(one.owned == set(one.consumer.assignment) for one in living)


@pytest.mark.slow
class TestLife(Life.TestCase):
    # To make what fails smaller takes longer than a test may: a life's steps are few.
    settings = examples(12, stateful_step_count=15, phases=(Phase.explicit, Phase.generate))
