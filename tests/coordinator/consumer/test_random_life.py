"""Whatever happens to a group: when it is left alone, its members divide the partitions.

That no partition is owned by two members in one generation is watched by `World.claim`, at every
assignment on the way.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from coordinator.group.state import GroupState
from tests.coordinator.consumer.world import Member, World
from tests.examples import examples

STRATEGIES = (
    "range",
    "cooperative-sticky",
    "sticky,roundrobin",
    "range,cooperative-sticky",
)
# Longer than a session, the longest join, and the two rebalances that a handover may take.
QUIET_MS = 90_000


class Life:
    """A world and what may happen in it. `pick` chooses among the members it is given."""

    def __init__(self, strategy: str, seed: int) -> None:
        self.world = World({"t": 5, "u": 2})
        self.random = random.Random(seed)
        self.strategy = strategy
        self.names = 0
        self.join(0)

    def _pick(self, members: list[Member], number: int) -> Member | None:
        return members[number % len(members)] if members else None

    def _start(self, **options: str) -> None:
        if len(self.world.living) < 5:
            self.names += 1
            self.world.member(
                f"member{self.names}",
                topics=["t", "u"],
                partition_assignment_strategy=self.strategy,
                **options,
            )

    # --- what happens -----------------------------------------------------------------------------

    def join(self, _: int) -> None:
        self._start()

    def join_static(self, number: int) -> None:
        """A new process of a static member, in place of the one that runs, if one does."""
        instance = f"instance{number % 2}"
        for one in self.world.living:
            if one.consumer.settings.group_instance_id == instance:
                one.crash()
        self._start(group_instance_id=instance)

    def crash(self, number: int) -> None:
        if (one := self._pick(self.world.living, number)) is not None:
            one.crash()

    def close(self, number: int) -> None:
        if (one := self._pick(self.world.living, number)) is not None:
            one.close()

    def stall(self, number: int) -> None:
        """The user's thread is busy, or no longer is; the heartbeats go on."""
        if (one := self._pick(self.world.living, number)) is not None:
            one.polls = not one.polls

    def stand_still(self, number: int) -> None:
        """A whole process stands still for as long as everything else goes on."""
        one = self._pick(self.world.living, number)
        if one is not None:
            one.alive = False
            self.world.run(number * 100)
            one.alive = True

    def lose(self, number: int) -> None:
        """From now on, requests and answers get lost, or no longer."""
        share = (0.0, 0.1, 0.5)[number % 3]
        self.world.lost = lambda _: self.random.random() < share

    def add_partitions(self, _: int) -> None:
        if self.world.topics["t"] < 12:
            self.world.update_topics({**self.world.topics, "t": self.world.topics["t"] + 1})

    def unload(self, _: int) -> None:
        """The coordinator is restarted from its log."""
        if self.world.group is not None:
            self.world.unload()
            self.world.load()

    def quiet(self) -> None:
        self.world.lost = lambda _: False
        for one in self.world.living:
            one.polls = True
        self.world.run(QUIET_MS)


HAPPENINGS: tuple[Callable[[Life, int], None], ...] = (
    Life.join,
    Life.join,
    Life.join_static,
    Life.crash,
    Life.close,
    Life.stall,
    Life.stand_still,
    Life.lose,
    Life.add_partitions,
    Life.unload,
)
STEPS = st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 200), st.integers(0, 15_000))


@pytest.mark.slow
@examples(12, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(STRATEGIES), st.integers(0, 1_000), st.lists(STEPS, max_size=15))
def test_left_alone_the_living_divide_the_partitions(
    strategy: str, seed: int, steps: list[tuple[Callable[[Life, int], None], int, int]]
) -> None:
    life = Life(strategy, seed)
    world = life.world
    for happen, number, ms in steps:
        happen(life, number)
        world.run(ms)
    life.quiet()
    living = world.living
    assert not [one.errors for one in world.members_made if one.errors]
    if not living:
        return
    assert world.state is GroupState.STABLE
    assert all(one.is_settled for one in living)
    assert world.group is not None
    assert {one.consumer.generation.generation_id for one in living} == {world.group.generation_id}
    assert sorted(p for one in living for p in one.owned) == sorted(world.partitions())
    assert all(one.owned == set(one.consumer.assignment) for one in living)
