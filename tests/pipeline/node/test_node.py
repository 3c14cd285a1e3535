"""A node: what it hands on of its settings, and how it watches its query."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.coordinator import Node
from group_coordinator.coordinator.group.group_snapshot import decode
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.group.timers import next_deadline
from group_coordinator.coordinator.ownership import CLAIMED, RELEASED, ClusterState
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta.appender import FencedError
from group_coordinator.pipeline.node import read_ahead
from group_coordinator.pipeline.node.node import CoordinatorNode, QueryHung, start
from group_coordinator.pipeline.node.query import batch_settings
from group_coordinator.pipeline.node.table_scan import TableScan
from group_coordinator.pipeline.ownership.decision_log import DecisionLog, DecisionsLost
from group_coordinator.pipeline.ownership.partitions import move
from group_coordinator.pipeline.settings import CoordinatorSettings, Settings
from group_coordinator.pipeline.stream.offset import Selection
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.tables import COORDINATORS
from tests.bench.machine import START, MachineGroup
from tests.pipeline.node.fake_engine import FakeEngine, FakeQuery
from tests.pipeline.node.looks import PARTITIONS, Clock, look, node_settings, until


@pytest.mark.parametrize(
    ("tolerance_ms", "late_ms", "expires"),
    [(2000, 12_000, True), (2000, 12_001, False), (500, 10_500, True), (500, 10_501, False)],
)
def test_a_timer_may_be_as_late_as_a_batch_waits_and_the_tolerance(
    tolerance_ms: int, late_ms: int, expires: bool
):
    ours = CoordinatorSettings(trigger_interval_ms=10_000, timer_tolerance_ms=tolerance_ms)
    config = GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0)
    machine = BatchMachine(batch_settings(ours, config, Node(1, "localhost", 9092)))
    group = MachineGroup(machine, "g", 1)
    group.form(START)
    formed = decode(group.state).group
    assert formed is not None
    due = next_deadline(formed)
    assert due is not None
    result = machine.process("g", group.state, [], due + late_ms)
    assert (result.output is not None) is expires


def assert_hangs_after(seconds: int, node: CoordinatorNode, time_of_day: Clock) -> None:
    """The node waits for its query for so long, and a second later no more."""
    for _ in range(seconds):
        time_of_day.now_s += 1
        node.check()
    time_of_day.now_s += 1
    with pytest.raises(QueryHung, match=f"for {seconds + 1} s"):
        node.check()


def test_a_node_whose_query_hangs_says_so_and_ends(root: str):
    ours = CoordinatorSettings(trigger_max_interval_ms=1000, progress_timeout_ms=60_000)
    engine, time_of_day = FakeEngine(), Clock()
    with clock.use(time_of_day):
        node = start(engine, root, Settings(coordinator=ours))
        try:
            time_of_day.now_s += 500
            node.check()
            (query,) = engine.queries
            query.hangs = True
            assert_hangs_after(61, node, time_of_day)
        finally:
            node.abandon()


def test_a_first_batch_may_wait_for_executors(root: str):
    """A cluster gives them when it has some: who ends meanwhile would wait from the beginning."""
    ours = CoordinatorSettings(trigger_max_interval_ms=1000, progress_timeout_ms=60_000)
    engine, time_of_day = FakeEngine(), Clock()
    engine.hangs = True
    with clock.use(time_of_day):
        node = start(engine, root, Settings(coordinator=ours))
        try:
            assert_hangs_after(600, node, time_of_day)
        finally:
            node.abandon()


def test_a_node_that_has_not_begun_does_not_say_that_it_has_read_all(
    root: str, monkeypatch: pytest.MonkeyPatch
):
    """Its first look may be another decision's; meanwhile others trim what all have consumed."""
    engine, log = FakeEngine(), RequestLog(root)
    nodes = {
        1: start(engine, root, node_settings(1)),
        2: start(FakeEngine(), root, node_settings(2)),
    }
    decisions = DecisionLog(root)
    until(nodes, lambda: len(decisions.read().owned_by(2)) > 0)
    nodes[2].stop()
    nodes[1].abandon()
    for number in range(3):
        log.append([RequestEvent(f"r{number}", "g", "heartbeat")])
    again = CoordinatorNode(engine, root, node_settings(1))
    try:
        before = decisions.read(), decisions.consumed_by(1)
        monkeypatch.setattr(DecisionLog, "decide", lambda *_: None)
        again.tick()
        assert again.running_query is None, "what the other node had is to be claimed first"
        assert (decisions.read(), decisions.consumed_by(1)) == before
    finally:
        again.abandon()


def test_a_node_is_given_partitions_once_its_query_runs(root: str):
    """The groups of what it is given would wait for the start of a query, which takes seconds."""
    engine = FakeEngine()
    nodes = {1: start(FakeEngine(), root, node_settings(1))}
    decisions = DecisionLog(root)
    try:
        until(nodes, lambda: decisions.read().nodes[1].ready)
        nodes[2] = start(engine, root, node_settings(2))
        (query,) = engine.queries
        query.ready = False
        assert query.selection == Selection((), PARTITIONS)
        before = decisions.read()
        with pytest.raises(AssertionError, match="did not come to pass"):
            until(nodes, lambda: decisions.read() != before, rounds=5)
        query.ready = True
        until(nodes, lambda: len(decisions.read().owned_by(2)) == PARTITIONS // 2)
        assert engine.queries == [query]
    finally:
        for node in nodes.values():
            node.abandon()


def test_a_node_that_lost_a_partition_which_it_was_loading_is_fenced(
    root: str, monkeypatch: pytest.MonkeyPatch
):
    """It stood still after its claim, and was taken for dead: its end is to say so."""
    nodes = {number: start(FakeEngine(), root, node_settings(number)) for number in (1, 2)}
    decisions = DecisionLog(root)
    monkeypatch.setattr(FakeQuery, "is_changed", lambda _: False)
    try:
        until(nodes, lambda: len(decisions.read().meant_for(2)) > 0)
        (claimed, *_) = decisions.read().meant_for(2)
        decisions.decide_until(lambda _: [_event(RELEASED, 1, claimed)])
        until({2: nodes[2]}, lambda: claimed in decisions.read().owned_by(2))
        decisions.decide_until(lambda _: [_event(CLAIMED, 1, claimed)])
        monkeypatch.undo()
        with pytest.raises(FencedError, match=f"partition {claimed}"):
            nodes[2].poll()
    finally:
        for node in nodes.values():
            node.abandon()


@pytest.mark.parametrize("lost", ["true", "event = 'claimed'"])
def test_a_node_ends_and_says_so_if_its_decisions_were_deleted(root: str, lost: str):
    node = start(FakeEngine(), root, node_settings(1))
    try:
        until({1: node}, lambda: len(DecisionLog(root).read().owned_by(1)) == PARTITIONS)
        DeltaTable(table_uri(root, COORDINATORS)).delete(lost)
        with pytest.raises(DecisionsLost, match="coordinators has lost rows of node 1"):
            node.poll()
    finally:
        node.stop()
    again = start(FakeEngine(), root, node_settings(1))
    try:
        until({1: again}, lambda: len(DecisionLog(root).read().owned_by(1)) == PARTITIONS)
    finally:
        again.abandon()


def _event(what: str, node_id: int, partition: int) -> CoordinatorEvent:
    return CoordinatorEvent(0, -1, what, node_id, partition)


def test_a_node_without_partitions_forgets_what_its_earlier_start_has_read(root: str):
    """Others took its partitions, and then trimmed the log that its next batch was to read."""
    engine = FakeEngine()
    first = start(engine, root, node_settings(1))
    first.stop()
    other = start(FakeEngine(), root, node_settings(2))
    try:
        assert len(DecisionLog(root).read().owned_by(2)) == PARTITIONS
        RequestLog(root).append([RequestEvent("r", "g", "heartbeat")])
        again = start(engine, root, node_settings(1))
        again.abandon()
        assert [query.selection.partitions for query in engine.queries] == [None, ()]
        assert engine.bootstraps[-1].first_version == 2, "behind the request"
    finally:
        other.abandon()


def test_a_node_whose_claim_is_refused_begins_no_query(root: str, monkeypatch: pytest.MonkeyPatch):
    """It has no partitions, so nobody keeps the log for its streaming checkpoint's next batch."""
    engine = FakeEngine()
    node = CoordinatorNode(engine, root, node_settings(1))
    try:
        with monkeypatch.context() as others:
            others.setattr(DecisionLog, "decide", lambda *_: None)
            node.tick()
        assert not engine.queries
        until({1: node}, lambda: len(engine.queries) == 1)
        assert engine.queries[0].selection.partitions is None, "it has claimed all meanwhile"
    finally:
        node.abandon()


@pytest.mark.slow
def test_a_partition_that_comes_and_goes_begins_no_query_anew(root: str):
    """A query that is begun anew has all groups of its node wait for one to two seconds."""
    engines = {number: FakeEngine() for number in (1, 2)}
    nodes = {number: start(engines[number], root, node_settings(number)) for number in (1, 2)}
    try:
        decisions = DecisionLog(root)
        until(nodes, lambda: len(decisions.read().owned_by(2)) == PARTITIONS // 2)
        begun = [engine.queries[-1] for engine in engines.values()]
        for to in (2, 1, 2):
            move(decisions, 0, to)
            until(nodes, lambda to=to: 0 in decisions.read().owned_by(to))
        for number, engine in engines.items():
            assert engine.queries == [begun[number - 1]], "the query that it began at first"
            assert not begun[number - 1].stopped
        epoch = decisions.read().partitions[0].epoch
        gained, given_up = begun[1].changes[-1], begun[0].changes[-1]
        assert (gained.claims or {})[0] == epoch
        assert 0 not in gained.unloading
        assert 0 in given_up.unloading, "it is decided for until no request of it is read"
        assert (given_up.claims or {})[0] == given_up.unloading[0]
    finally:
        for node in nodes.values():
            node.abandon()


@pytest.mark.slow
def test_before_a_partition_is_given_up_its_next_owner_reads_ahead(
    root: str, monkeypatch: pytest.MonkeyPatch
):
    """It reads all that is kept while the other still decides, and then only what is new."""
    log = RequestLog(root)
    nodes = {number: start(FakeEngine(), root, node_settings(number)) for number in (1, 2)}
    decisions = DecisionLog(root)
    read: list[tuple[bool, int]] = []
    pages = TableScan.pages

    def seen(scan: TableScan, columns: list[str], since: int = 0):
        is_kept = 0 in decisions.read().kept_by(1)
        read.append((is_kept, scan.file_count - since))
        return pages(scan, columns, since)

    try:
        until(nodes, lambda: len(decisions.read().owned_by(2)) == PARTITIONS // 2)
        for number in range(9):
            log.append([RequestEvent(f"r{number}", "g", "heartbeat")])
        monkeypatch.setattr(TableScan, "pages", seen)
        # What it read ahead for its share is a moment old, for which alone it would not read again.
        monkeypatch.setattr(read_ahead, "_AGAIN_S", 0.0)
        monkeypatch.setattr(read_ahead, "_AGAIN_SHARE", 0.0)
        nodes[2]._query._ahead._read_at = 0.0
        move(decisions, 0, 2)
        nodes[1].tick()
        look({1: nodes[1]})
        assert 0 in decisions.read().kept_by(1), "the other has not read ahead yet"
        until(nodes, lambda: 0 in decisions.read().owned_by(2))
        until(nodes, nodes[2].is_ready)
        assert (True, 9) in read
        assert max(files for is_kept, files in read if not is_kept) == 0
    finally:
        for node in nodes.values():
            node.abandon()


@pytest.mark.slow
def test_who_never_reads_ahead_is_given_a_partition_all_the_same(
    root: str, monkeypatch: pytest.MonkeyPatch
):
    """It is waited for a while, and one that never says that it does is not waited for."""
    time_of_day = Clock()
    with clock.use(time_of_day):
        nodes = {number: start(FakeEngine(), root, node_settings(number)) for number in (1, 2)}
        decisions = DecisionLog(root)
        try:
            until(nodes, lambda: len(decisions.read().owned_by(2)) == PARTITIONS // 2)
            monkeypatch.setattr(CoordinatorNode, "_prepare_for_claims", lambda _: None)
            move(decisions, 0, 2)
            for _ in range(4):
                look(nodes)
                time_of_day.now_s += 4.9
                assert 0 in decisions.read().kept_by(1)
            until(nodes, lambda: 0 in decisions.read().owned_by(2), rounds=30)
            monkeypatch.setattr(DecisionLog, "prepared_by", lambda *_: -1)
            move(decisions, 1, 2)
            until(nodes, lambda: 1 in decisions.read().owned_by(2), rounds=10)
        finally:
            for node in nodes.values():
                node.abandon()


@pytest.mark.full
def test_nodes_that_start_at_once_come_to_even_shares(root: str):
    """One dies while it is given its share, and the one that decides starts anew in between."""
    engines = {number: FakeEngine() for number in range(1, 6)}
    decisions = DecisionLog(root)

    def shares() -> list[int]:
        cluster = decisions.read()
        return [len(cluster.kept_by(number)) for number in nodes]

    with clock.use(Clock()):
        nodes = {n: start(engines[n], root, node_settings(n)) for n in (1, 2, 3, 4, 5)}
        try:
            until(nodes, lambda: shares()[4] > 0)
            nodes.pop(5).abandon()
            nodes.pop(1).abandon()
            nodes[1] = start(engines[1], root, node_settings(1))
            until(nodes, lambda: sorted(shares()) == [3, 3, 3, 4], rounds=800)
            assert all(len(engines[n].queries) == 1 for n in (2, 3, 4)), "none is begun anew"
            before = decisions.read()
            with pytest.raises(AssertionError, match="did not come to pass"):
                until(nodes, lambda: decisions.read() != before)
        finally:
            for node in nodes.values():
                node.abandon()


def is_ready(cluster: ClusterState, node_id: int) -> ClusterState:
    node = replace(cluster.nodes[node_id], ready=True)
    return replace(cluster, nodes={**cluster.nodes, node_id: node})
