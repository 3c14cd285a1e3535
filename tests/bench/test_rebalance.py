"""The benchmark of rebalances: its members against the pure machine, and against a broker."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from group_coordinator.coordinator.group.group_snapshot import decode
from group_coordinator.coordinator.group.state import GroupState
from group_coordinator.pipeline.errors import Failure
from group_coordinator.schemas.messages import RequestEvent
from tests.bench.machine import make_machine
from tests.bench.rebalance import measure
from tests.support.fleet import Member
from tests.support.rebalance import Rebalance


class MachinePeer:
    """The pure machine: requests are a batch, its answers are there at once."""

    def __init__(self) -> None:
        self.machine = make_machine()
        self.states: dict[str, bytes | None] = {}
        self.rows: list[dict[str, Any]] = []
        self.batches = 0

    def send(self, events: list[RequestEvent]) -> None:
        self.batches += 1
        for group_id in sorted({event.group_id for event in events}):
            texts = [msgspec.json.encode(e).decode() for e in events if e.group_id == group_id]
            state = self.states.get(group_id)
            result = self.machine.process(group_id, state, texts, self.batches)
            self.states[group_id] = result.state
            assert result.output is not None
            self.rows += [msgspec.to_builtins(answer) for answer in result.output.responses]

    def answers(self) -> list[dict[str, Any]]:
        rows, self.rows = self.rows, []
        return rows


def test_everybody_joins_and_one_more() -> None:
    peer = MachinePeer()
    group = [Member("g", f"m{i}") for i in range(5)]
    *founders, newcomer = group
    Rebalance(peer, founders).run(founders)
    stored = decode(peer.states["g"]).group
    assert stored is not None
    assert (stored.state, len(stored.members), stored.generation_id) == (GroupState.STABLE, 4, 2)
    Rebalance(peer, group).run([newcomer])
    stored = decode(peer.states["g"]).group
    assert stored is not None
    assert (stored.state, len(stored.members), stored.generation_id) == (GroupState.STABLE, 5, 3)
    assert {member.generation for member in group} == {3}


def test_an_error_that_is_no_part_of_a_rebalance_ends_it() -> None:
    peer = MachinePeer()
    group = [Member("g", "m0")]
    with pytest.raises(Failure, match="heartbeat of m0 was answered UNKNOWN_MEMBER_ID"):
        Rebalance(peer, group).run([])


def test_first_groups_do_not_count() -> None:
    groups = [[Member(f"g{n}", f"m-{n}-{i}") for i in range(4)] for n in range(3)]
    figures = measure("machine", MachinePeer(), groups, warm_ups=2)
    assert (figures.members, figures.rounds) == (3, 1)
    assert figures.first_join_s > 0
    assert figures.one_more_s > 0
    # Join, the first one's sync refused, join again, sync; one more: see it, join again, sync.
    assert figures.first_join_batches == 4
    assert figures.one_more_batches == 3
