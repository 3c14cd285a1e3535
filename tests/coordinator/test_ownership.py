"""Coordinators share the offsets partitions: the owners, and the next claims and releases."""

from __future__ import annotations

from collections import Counter
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from group_coordinator.coordinator.ownership import (
    CANCELLED,
    CLAIMED,
    MOST_MOVING,
    MOVE,
    READY,
    RELEASED,
    STARTED,
    STOPPED,
    STOPPING,
    UNLOADING,
    ClusterState,
    Plan,
    decide,
    fold,
    takers,
)
from group_coordinator.schemas.records import CoordinatorEvent
from tests.examples import examples

PARTITIONS = 10
OPERATOR, HOLDER = -1, -2
NODES = st.integers(1, 4)


class Cluster:
    """A log of decisions and the live nodes; each decision is an epoch."""

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.partitions = partitions
        self.cluster = ClusterState()
        self.alive: set[int] = set()
        self.held: set[int] = set()
        self.log: list[CoordinatorEvent] = []
        self._clock = count(100, 100)

    def say(self, event: str, node_id: int, *partitions: int | None, to: int | None = None) -> None:
        at, epoch = next(self._clock), self.cluster.epoch + 1
        rows = [
            CoordinatorEvent(at, epoch, event, node_id, p, "h", 9092, to)
            for p in partitions or (None,)
        ]
        self.log += rows
        self.cluster = fold(self.cluster, rows)

    def begin(self, node_id: int) -> None:
        self.alive.add(node_id)
        self.say(STARTED, node_id)

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.begin(node_id)
            self.say(READY, node_id)

    def die(self, node_id: int) -> None:
        self.alive.discard(node_id)

    def release_to_second(self) -> int:
        """Settle, and let node 1 release a partition that is assigned to node 2; return it."""
        self.settle()
        (partition, *_) = self.cluster.owned_by(1)
        self.say(MOVE, OPERATOR, partition, to=2)
        self.say(UNLOADING, 1, partition)
        self.say(RELEASED, 1, partition)
        return partition

    def plan(self, node_id: int) -> Plan:
        return decide(self.cluster, node_id, self.alive, self.partitions, self.held)

    def act(self, node_id: int) -> bool:
        """Let the node do its plan; return whether it had one."""
        plan = self.plan(node_id)
        if plan.unload:
            self.say(UNLOADING, node_id, *plan.unload)
            self.say(RELEASED, node_id, *plan.unload)
        if plan.claim:
            self.say(CLAIMED, node_id, *plan.claim)
        for partition, to in plan.moves:
            self.say(MOVE, node_id, partition, to=to)
        return plan != Plan()

    def under_way(self) -> int:
        """Return the number of partitions that are moving to a live node."""
        return sum(
            state.to_node in self.alive and state.to_node != state.owner
            for state in self.cluster.partitions.values()
        )

    def owners(self) -> dict[int, int | None]:
        return {p: state.owner for p, state in self.cluster.partitions.items()}

    def settle(self) -> None:
        for _ in range(100):
            acted = [self.act(node_id) for node_id in sorted(self.alive)]
            if not any(acted):
                return
        raise AssertionError("it never comes to rest")

    def counts(self) -> dict[int | None, int]:
        return dict(Counter(state.owner for state in self.cluster.partitions.values()))


def test_the_first_node_takes_every_partition():
    cluster = Cluster()
    cluster.start(1)
    assert cluster.plan(1) == Plan(claim=tuple(range(PARTITIONS)))
    cluster.settle()
    assert cluster.counts() == {1: PARTITIONS}


def test_a_node_that_joins_is_given_its_share():
    cluster = Cluster()
    cluster.start(1)
    cluster.settle()
    cluster.start(2)
    assert cluster.plan(2) == Plan(), "it takes nothing that another one has"
    assert [to for _, to in cluster.plan(1).moves] == [2] * 5
    cluster.settle()
    assert cluster.counts() == {1: 5, 2: 5}
    cluster.start(3)
    cluster.settle()
    assert sorted(cluster.counts().values()) == [3, 3, 4]


def test_nodes_that_start_at_once_come_to_even_shares():
    """The fourth node joins while partitions are still moving to the second one."""
    cluster = Cluster(50)
    cluster.start(1)
    cluster.act(1)
    cluster.start(2)
    cluster.act(1)
    cluster.start(3)
    cluster.act(1)
    cluster.start(4)
    cluster.settle()
    assert cluster.counts() == {1: 13, 2: 13, 3: 12, 4: 12}


def test_shares_become_even_by_the_fewest_moves_and_then_stay():
    cluster = Cluster(50)
    cluster.start(1)
    cluster.settle()
    cluster.start(2, 3, 4)
    cluster.settle()
    assert sum(event.event == MOVE for event in cluster.log) == 37
    assert not any(cluster.act(node_id) for node_id in (1, 2, 3, 4))


def test_few_partitions_are_under_way_at_a_time():
    cluster = Cluster(50)
    cluster.start(1)
    cluster.settle()
    cluster.start(2, 3)
    under_way = [0]
    for _ in range(100):
        for node_id in (3, 2, 1):
            cluster.act(node_id)
            under_way.append(cluster.under_way())
    assert max(under_way) == MOST_MOVING
    assert sorted(cluster.counts().values()) == [16, 17, 17]


def test_a_node_that_does_not_take_what_is_given_to_it_is_given_no_more():
    cluster = Cluster(50)
    cluster.start(1)
    cluster.settle()
    cluster.start(2, 3)
    for _ in range(20):
        cluster.act(1)
        cluster.act(2)
    assert 3 not in cluster.counts()
    assert sum(state.to_node == 3 for state in cluster.cluster.partitions.values()) <= MOST_MOVING
    cluster.die(3)
    cluster.settle()
    assert cluster.counts() == {1: 25, 2: 25}


def test_a_node_that_starts_again_within_its_lease_moves_nothing():
    cluster = Cluster(50)
    cluster.start(1, 2, 3)
    cluster.settle()
    before = cluster.cluster.partitions
    cluster.start(2)
    cluster.settle()
    assert cluster.cluster.partitions == before


def test_a_node_that_dies_while_partitions_move_leaves_the_others_with_even_shares():
    for dies in (1, 2, 3):
        for steps in range(12):
            cluster = Cluster(50)
            cluster.start(1)
            cluster.settle()
            cluster.start(2, 3)
            for step in range(steps):
                cluster.act(1 + step % 3)
            cluster.die(dies)
            cluster.settle()
            assert [*cluster.counts().values()] == [25, 25], (dies, steps)


def test_a_node_that_starts_is_given_nothing_before_it_is_ready():
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.settle()
    cluster.begin(3)
    cluster.settle()
    assert cluster.counts() == {1: 5, 2: 5}
    cluster.die(2)
    cluster.settle()
    assert cluster.counts() == {1: PARTITIONS}, "nor what a dead one had: a query is to start first"
    cluster.say(READY, 3)
    cluster.settle()
    assert cluster.counts() == {1: 5, 3: 5}


def test_if_nobody_is_ready_partitions_are_claimed_all_the_same():
    cluster = Cluster()
    cluster.begin(1)
    cluster.settle()
    assert cluster.counts() == {1: PARTITIONS}


def test_what_was_moved_by_hand_stays_moved_until_a_node_joins():
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.settle()
    for partition in cluster.cluster.owned_by(2):
        cluster.say(MOVE, OPERATOR, partition, to=1)
    cluster.settle()
    assert cluster.counts() == {1: PARTITIONS}
    cluster.start(1)
    cluster.settle()
    assert cluster.counts() == {1: PARTITIONS}, "who starts again within its lease does not join"
    cluster.say(MOVE, OPERATOR, 0, to=2)
    cluster.settle()
    assert cluster.counts() == {1: PARTITIONS - 1, 2: 1}, "nor does who takes what is moved to it"
    cluster.start(0)
    cluster.settle()
    assert sorted(cluster.counts().values()) == [3, 3, 4]


def test_a_move_that_an_operator_takes_back_is_not_decided_again():
    cluster = Cluster()
    cluster.start(1)
    cluster.settle()
    cluster.start(2)
    cluster.act(1)
    for partition, state in cluster.cluster.partitions.items():
        if state.to_node == 2:
            cluster.say(CANCELLED, OPERATOR, partition)
    cluster.settle()
    assert cluster.counts() == {1: PARTITIONS}


def test_shares_wait_while_an_import_holds_partitions():
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.settle()
    before = cluster.owners()
    cluster.start(HOLDER)
    cluster.say(MOVE, HOLDER, *range(PARTITIONS), to=HOLDER)
    cluster.settle()
    assert cluster.counts() == {HOLDER: PARTITIONS}
    cluster.start(3)
    assert [cluster.plan(node_id) for node_id in (HOLDER, 1, 2, 3)] == [Plan()] * 4
    for partition, owner in before.items():
        cluster.say(RELEASED, HOLDER, partition, to=owner)
    cluster.say(STOPPED, HOLDER)
    cluster.die(HOLDER)
    cluster.settle()
    assert sorted(cluster.counts().values()) == [3, 3, 4]
    moved = {p for p, owner in cluster.owners().items() if owner != before[p]}
    assert len(moved) == 3, "no more than the new node's share"


def test_who_takes_another_node_for_dead_claims_before_shares_are_evened_out():
    cluster = Cluster(50)
    cluster.start(1, 2)
    cluster.settle()
    cluster.start(3)
    assert cluster.plan(1).moves
    seen = {node_id: decide(cluster.cluster, node_id, {2, 3}, 50) for node_id in (2, 3)}
    assert seen[3].fence == (1,)
    assert not (seen[2].moves or seen[3].moves), "so no two nodes decide moves"


def test_a_move_is_unloaded_then_claimed():
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.settle()
    (partition, *_) = cluster.cluster.owned_by(1)
    cluster.say(MOVE, OPERATOR, partition, to=2)
    assert cluster.plan(1).unload == (partition,)
    assert cluster.plan(2).claim == (), "not before it is released"
    cluster.say(UNLOADING, 1, partition)
    assert cluster.plan(1).unload == (partition,), "a node that died in the midst goes on"
    assert partition not in cluster.cluster.kept_by(1)
    cluster.say(RELEASED, 1, partition)
    assert cluster.plan(1) == Plan()
    assert cluster.plan(2) == Plan(claim=(partition,))


def test_a_move_to_a_node_that_is_away_waits_and_can_be_cancelled():
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.settle()
    (partition, *_) = cluster.cluster.owned_by(1)
    cluster.say(MOVE, OPERATOR, partition, to=3)
    assert cluster.plan(1) == Plan()
    cluster.say(CANCELLED, OPERATOR, partition)
    cluster.start(3)
    assert cluster.plan(1).unload == ()


def test_a_move_to_a_node_that_starts_anew_waits_until_it_is_ready():
    """If the partition were unloaded at once, it would have no owner during the start."""
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.settle()
    (partition, *_) = cluster.cluster.owned_by(1)
    cluster.begin(2)
    cluster.say(MOVE, OPERATOR, partition, to=2)
    assert cluster.plan(1) == cluster.plan(2) == Plan()
    cluster.say(READY, 2)
    assert cluster.plan(1).unload == (partition,)
    cluster.settle()
    assert cluster.owners()[partition] == 2


def test_a_partition_that_was_released_to_a_node_that_starts_anew_is_taken_by_one_that_is_ready():
    cluster = Cluster()
    cluster.start(1, 2, 3)
    partition = cluster.release_to_second()
    cluster.begin(2)
    assert cluster.plan(2) == Plan()
    cluster.settle()
    assert cluster.owners()[partition] in (1, 3)


def test_if_nobody_is_ready_a_released_partition_goes_to_whom_it_is_meant_for():
    cluster = Cluster()
    cluster.start(1, 2)
    partition = cluster.release_to_second()
    cluster.begin(1)
    cluster.begin(2)
    assert cluster.plan(1) == Plan()
    assert cluster.plan(2).claim == (partition,)


def test_a_partition_that_is_held_stays_with_its_owner():
    """The target still prepares; the release of a partition that is being unloaded continues."""
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.settle()
    cluster.say(MOVE, OPERATOR, 0, to=2)
    cluster.held.add(0)
    assert cluster.plan(1).unload == ()
    assert list(cluster.cluster.meant_for(2)) == [0]
    assert not cluster.cluster.partitions[0].is_let_go
    cluster.held.clear()
    assert cluster.plan(1).unload == (0,)
    cluster.say(UNLOADING, 1, 0)
    cluster.held.add(0)
    assert cluster.plan(1).unload == (0,)
    assert cluster.cluster.partitions[0].is_let_go
    cluster.say(RELEASED, 1, 0)
    assert cluster.cluster.partitions[0].is_let_go
    assert cluster.plan(2).claim == (0,)
    cluster.say(CLAIMED, 2, 0)
    assert cluster.cluster.meant_for(2) == {}


def test_a_dead_node_s_partitions_go_to_the_others_once_it_is_fenced():
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.settle()
    cluster.die(2)
    assert cluster.plan(1).fence == cluster.plan(3).fence == (2,)
    cluster.settle()
    assert cluster.counts() == {1: 5, 3: 5}


def test_a_node_that_stopped_finds_its_partitions_again_if_nobody_took_them():
    cluster = Cluster()
    cluster.start(1)
    cluster.settle()
    epochs = {p: state.epoch for p, state in cluster.cluster.partitions.items()}
    cluster.say(STOPPED, 1)
    assert cluster.cluster.nodes[1].stopped
    cluster.start(1)
    assert not cluster.cluster.nodes[1].stopped
    assert cluster.plan(1) == Plan(), "they are still its own"
    assert {p: state.epoch for p, state in cluster.cluster.partitions.items()} == epochs


def test_a_node_that_is_told_to_end_gives_what_it_has_to_those_with_the_fewest():
    """They move at once, so that its groups wait once; no partition moves back to it."""
    cluster = Cluster(40)
    cluster.start(1, 2, 3)
    cluster.settle()
    before = {p for p, owner in cluster.owners().items() if owner == 1}
    cluster.say(STOPPING, 1)
    plan = cluster.plan(1)
    assert {partition for partition, _ in plan.moves} == before
    assert plan.unload == (), "it decides for them until they are moved"
    assert cluster.act(1)
    assert cluster.plan(1).moves == ()
    assert cluster.plan(2) == cluster.plan(3) == Plan()
    cluster.settle()
    assert cluster.counts() == {2: 20, 3: 20}
    cluster.say(STOPPED, 1)
    cluster.die(1)
    assert cluster.plan(2) == cluster.plan(3) == Plan()
    cluster.start(1)
    cluster.settle()
    assert sorted(cluster.counts().values()) == [13, 13, 14], "it is given its share again"


def test_an_operator_s_word_does_not_keep_partitions_at_a_node_that_is_told_to_end():
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.settle()
    first, second, *_ = cluster.cluster.owned_by(1)
    cluster.say(MOVE, OPERATOR, first, to=3)
    cluster.say(MOVE, OPERATOR, second, to=4)
    cluster.say(STOPPING, 1)
    plan = cluster.plan(1)
    assert plan.unload == (first,), "as the operator wants it"
    assert second in dict(plan.moves), "node 4 is not there"
    cluster.settle()
    assert cluster.owners()[first] == 3
    assert cluster.cluster.owned_by(1) == {}


def test_what_is_meant_for_a_node_that_is_told_to_end_stays_or_goes_elsewhere():
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.settle()
    kept, released, *_ = cluster.cluster.owned_by(2)
    cluster.say(MOVE, OPERATOR, kept, to=1)
    cluster.say(MOVE, OPERATOR, released, to=1)
    cluster.say(UNLOADING, 2, released)
    cluster.say(RELEASED, 2, released)
    cluster.say(STOPPING, 1)
    assert cluster.plan(1).claim == ()
    cluster.settle()
    assert cluster.owners()[kept] == 2
    assert cluster.owners()[released] in (2, 3)


def test_nodes_that_are_told_to_end_together_keep_what_nobody_can_take():
    """The second one stops while the first one releases partitions, which then have no target."""
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.settle()
    cluster.say(STOPPING, 1)
    cluster.act(1)
    (released, *_) = cluster.cluster.owned_by(1)
    cluster.say(UNLOADING, 1, released)
    cluster.say(RELEASED, 1, released)
    cluster.say(STOPPING, 2)
    assert takers(cluster.cluster, cluster.alive) == frozenset()
    assert cluster.plan(1) == cluster.plan(2) == Plan()
    for node_id in (1, 2):
        cluster.say(STOPPED, node_id)
        cluster.die(node_id)
    cluster.start(2)
    cluster.settle()
    assert cluster.counts() == {2: PARTITIONS}


def test_a_node_that_dies_while_it_hands_over_is_dead_like_any_other_and_may_come_back():
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.settle()
    cluster.say(STOPPING, 1)
    cluster.act(1)
    cluster.die(1)
    assert cluster.plan(2).fence == (1,)
    cluster.begin(1)
    assert not cluster.cluster.nodes[1].stopping
    cluster.settle()
    assert cluster.cluster.owned_by(2), "what it had decided to give is given"


def test_a_released_partition_whose_receiver_died_goes_to_somebody_else():
    cluster = Cluster()
    cluster.start(1, 2)
    partition = cluster.release_to_second()
    cluster.die(2)
    assert partition in cluster.plan(1).claim


def test_whoever_claims_a_partition_keeps_it_whomever_it_was_meant_for():
    cluster = Cluster()
    cluster.start(1, 2)
    partition = cluster.release_to_second()
    cluster.die(2)
    cluster.say(CLAIMED, 1, partition)
    assert cluster.cluster.meant_for(2) == {}
    assert partition in cluster.cluster.kept_by(1)


def test_an_event_that_a_later_release_may_write_changes_nothing():
    cluster = Cluster()
    cluster.start(1)
    cluster.settle()
    before = cluster.cluster.partitions
    cluster.say("annotated", 1, 3)
    cluster.say("annotated", 1)
    assert cluster.cluster.partitions == before


class ComingAndGoing(RuleBasedStateMachine):
    """Nodes come and go, an operator moves partitions; nodes execute their plans in part."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = Cluster()

    @initialize(partitions=st.integers(1, 12))
    def first_starts(self, partitions: int) -> None:
        self.nodes = Cluster(partitions)
        self.nodes.start(1)

    @rule(node_id=NODES)
    def start(self, node_id: int) -> None:
        self.nodes.start(node_id)

    @rule(node_id=NODES)
    def begin(self, node_id: int) -> None:
        self.nodes.begin(node_id)

    @precondition(lambda self: len(self.nodes.alive) > 1)
    @rule(number=st.integers(0, 3))
    def die(self, number: int) -> None:
        self.nodes.die(self.pick(number))

    @rule(number=st.integers(0, 3))
    def end(self, number: int) -> None:
        self.nodes.say(STOPPING, self.pick(number))

    @rule(partition=st.integers(0, 11), to=NODES)
    def move(self, partition: int, to: int) -> None:
        self.nodes.say(MOVE, OPERATOR, partition % self.nodes.partitions, to=to)

    @rule(partition=st.integers(0, 11))
    def cancel(self, partition: int) -> None:
        self.nodes.say(CANCELLED, OPERATOR, partition % self.nodes.partitions)

    @rule(number=st.integers(0, 3))
    def act(self, number: int) -> None:
        self.nodes.act(self.pick(number))

    @rule(number=st.integers(0, 3))
    def begin_to_unload(self, number: int) -> None:
        """The node dies, or others decide, before it has released its unloaded partitions."""
        node_id = self.pick(number)
        for partition in self.nodes.plan(node_id).unload[:1]:
            self.nodes.say(UNLOADING, node_id, partition)

    def pick(self, number: int) -> int:
        return sorted(self.nodes.alive)[number % len(self.nodes.alive)]

    @invariant()
    def nobody_takes_what_another_decides_for(self) -> None:
        claimed: set[int] = set()
        for node_id in sorted(self.nodes.alive):
            plan = self.nodes.plan(node_id)
            owners = {p: self.nodes.owners().get(p) for p in plan.claim}
            assert not self.nodes.alive & {*owners.values()}, "its owner lives"
            assert {*plan.fence} == {*owners.values()} - {None}, "who is dead is fenced before"
            assert not claimed & {*plan.claim}, "two would claim it"
            claimed |= {*plan.claim}
            assert {*plan.unload} <= self.nodes.cluster.owned_by(node_id).keys()
            assert {to for _, to in plan.moves} <= takers(self.nodes.cluster, self.nodes.alive)

    @invariant()
    def the_log_says_the_same_at_once_or_piece_by_piece(self) -> None:
        assert fold(ClusterState(), self.nodes.log) == self.nodes.cluster

    def teardown(self) -> None:
        """Without further changes each partition gets one live owner, and shares are even."""
        nodes = self.nodes
        if not nodes.alive:
            return
        nodes.settle()
        staying = {n for n in nodes.alive if not nodes.cluster.nodes[n].stopping}
        if takers(nodes.cluster, nodes.alive):
            assert {*nodes.owners().values()} <= staying, "who is told to end has nothing left"
        for node_id in nodes.alive - staying:
            nodes.say(STOPPED, node_id)
            nodes.die(node_id)
        if not nodes.alive:
            nodes.start(1)
        nodes.settle()
        for node_id in nodes.alive:
            nodes.say(READY, node_id)
        nodes.settle()
        assert nodes.owners().keys() == set(range(nodes.partitions))
        assert {*nodes.owners().values()} <= nodes.alive
        shares = [len(nodes.cluster.owned_by(node_id)) for node_id in nodes.alive]
        assert nodes.cluster.by_hand or max(shares) <= min(shares) + 1


class TestComingAndGoing(ComingAndGoing.TestCase):
    settings = examples(100, stateful_step_count=15)
