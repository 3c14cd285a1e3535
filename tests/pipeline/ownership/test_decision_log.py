"""Decisions in the `coordinators` table: one by one, leases, and what an operator moves."""

from __future__ import annotations

import errno
import itertools
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from group_coordinator.coordinator.ownership import (
    CLAIMED,
    READY,
    RELEASED,
    STARTED,
    STOPPED,
    STOPPING,
    UNLOADING,
    ClusterState,
    lease_app_id,
)
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.commit import Commit
from group_coordinator.pipeline.delta.identity import TableReplacedError
from group_coordinator.pipeline.delta.log import Log
from group_coordinator.pipeline.delta.storage import CommitStateUnknown
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.ownership import partitions
from group_coordinator.pipeline.ownership.decision_log import DECISIONS, DecisionLog
from group_coordinator.pipeline.ownership.lease import LeaseObserver, LeaseRenewal
from group_coordinator.pipeline.ownership.partitions import (
    await_move,
    cancel,
    list_partitions,
    move,
    open_decisions,
)
from group_coordinator.pipeline.settings import UpkeepSettings
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.pipeline.upkeep.retention import retain
from group_coordinator.schemas.records import CoordinatorEvent
from group_coordinator.schemas.tables import COORDINATORS, to_arrow
from tests.pipeline.rows import rows
from tests.support.failing_reads import TOO_MANY_FILES, failing_reads


def event(what: str, node_id: int, partition: int | None = None) -> CoordinatorEvent:
    return CoordinatorEvent(1_000, -1, what, node_id, partition, "h", 9092)


def cluster(root: str) -> DecisionLog:
    """Two nodes that have started; node 1 has the partitions 0 to 3."""
    decisions = DecisionLog(root)
    for events in (
        [event(STARTED, 1)],
        [event(STARTED, 2)],
        [event(CLAIMED, 1, p) for p in range(4)],
    ):
        assert decisions.decide(decisions.read(), events) is not None
    return decisions


def test_of_two_that_decide_on_one_board_the_second_is_refused(root: str) -> None:
    first, second = DecisionLog(root), DecisionLog(root)
    assert first.decide(second.read(), [event(STARTED, 1)]) is not None
    assert second.decide(ClusterState(), [event(STARTED, 2)]) is None
    assert set(second.read().nodes) == {1}
    # It decides on what it was told, also when it has seen more since.
    assert second.decide(ClusterState(), [event(STARTED, 2)]) is None


def test_starts_at_once_get_an_epoch_each(root: str) -> None:
    def start(node_id: int) -> None:
        DecisionLog(root).decide_until(lambda _cluster: [event(STARTED, node_id)])

    threads = [threading.Thread(target=start, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(row["epoch"] for row in rows(root, "coordinators")) == [0, 1, 2, 3]
    assert set(DecisionLog(root).read().nodes) == {0, 1, 2, 3}


def test_the_board_that_is_read_is_the_one_that_was_decided(root: str) -> None:
    decisions = cluster(root)
    assert DecisionLog(root).read() == decisions.read()
    assert decisions.read().partitions[3].claimed_at == 1_000


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_node_is_alive_while_its_lease_changes(root: str) -> None:
    decisions = cluster(root)
    time = Time()
    observer = LeaseObserver(1, 10_000, time)
    leases = {1: 0, 2: 5}
    assert observer.alive(decisions.read(), leases.__getitem__) == {1, 2}, "time to show itself"
    look_until(9.0, time, observer, decisions, leases)
    leases[2] = 6
    assert look_until(19.0, time, observer, decisions, leases) == {1, 2}
    assert look_until(19.5, time, observer, decisions, leases) == {1}
    decisions.decide(decisions.read(), [event(STARTED, 2)])
    assert observer.alive(decisions.read(), leases.__getitem__) == {1, 2}, "started again"
    decisions.decide(decisions.read(), [event(STOPPED, 2)])
    assert observer.alive(decisions.read(), leases.__getitem__) == {1}, "it said so: nobody waits"


def look_until(
    until: float,
    time: Time,
    observer: LeaseObserver,
    decisions: DecisionLog,
    leases: dict[int, int],
) -> set[int]:
    """Look twice a second, as a node does; return who is alive at the end."""
    while True:
        alive = observer.alive(decisions.read(), leases.__getitem__)
        if time.now == until:
            return alive
        time.now += 0.5


def test_who_stood_still_takes_nobody_for_dead(root: str) -> None:
    """Two nodes of a machine that slept would fence each other, and both would end."""
    decisions = cluster(root)
    time = Time()
    observer, leases = LeaseObserver(1, 10_000, time), {1: 0, 2: 5}
    look_until(2.5, time, observer, decisions, leases)
    time.now = 3602.5
    assert observer.alive(decisions.read(), leases.__getitem__) == {1, 2}
    assert look_until(3605.0, time, observer, decisions, leases) == {1, 2}
    assert look_until(3605.5, time, observer, decisions, leases) == {1}, "it has not woken up"


def test_a_lease_is_renewed_also_when_the_clock_was_set_back(root: str) -> None:
    decisions = cluster(root)
    clock = iter([100, 50])
    lease = LeaseRenewal(root, 1, 60_000, lambda: next(clock))
    lease.renew()
    lease.stop()
    decisions.read()
    assert decisions.lease_of(1) == 101
    assert decisions.lease_of(2) == -1
    assert lease_app_id(1) != lease_app_id(2)
    assert len(rows(root, "coordinators")) == 6, "living on adds no rows"


def test_a_lease_is_renewed_by_several_threads_without_a_gap_in_the_log(root: str) -> None:
    decisions = cluster(root)
    lease = LeaseRenewal(root, 1, 60_000, itertools.count(100).__next__)
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(lease.renew) for _ in range(40)]:
            done.result()
    lease.stop()
    decisions.read()
    assert decisions.lease_of(1) == 140


def test_a_move_is_asked_for_and_taken_back(root: str) -> None:
    decisions = cluster(root)
    move(decisions, 3, 2)
    assert DecisionLog(root).read().partitions[3].to_node == 2
    cancel(open_decisions(root), 3)
    assert decisions.read().partitions[3].to_node is None
    with pytest.raises(Failure, match="partition 3 has no move to cancel"):
        cancel(decisions, 3)


def test_what_cannot_be_moved_is_said(root: str) -> None:
    decisions = cluster(root)
    with pytest.raises(Failure, match="there is no offsets partition 9; the root has 4"):
        move(decisions, 9, 2)
    with pytest.raises(Failure, match="node 7 has never started on this root; known nodes: 1, 2"):
        move(decisions, 3, 7)
    move(decisions, 3, 2)
    decisions.decide(decisions.read(), [event(UNLOADING, 1, 3)])
    with pytest.raises(
        Failure, match="too late to cancel: partition 3 is already moving to node 2"
    ):
        cancel(decisions, 3)
    with pytest.raises(Failure, match="already moving to node 2"):
        move(decisions, 3, 1)


def test_who_waits_for_a_move_hears_that_it_takes_too_long_or_was_cancelled(root: str) -> None:
    decisions = cluster(root)
    move(decisions, 3, 2)
    said: list[str] = []
    with pytest.raises(Failure, match="node 2 does not own partition 3 after 0 s"):
        await_move(decisions, 3, 2, 0, said.append)
    decisions.decide(decisions.read(), [event(READY, 2)])
    with pytest.raises(Failure):
        await_move(decisions, 3, 2, 0, said.append)
    decisions.decide(decisions.read(), [event(STOPPING, 2)])
    with pytest.raises(Failure):
        await_move(decisions, 3, 2, 0, said.append)
    kept = "partition 3: node 1 keeps it until node 2"
    assert said == [f"{kept} is ready", f"{kept} has read ahead", f"{kept} is ready"]
    cancel(decisions, 3)
    with pytest.raises(Failure, match="was cancelled"):
        await_move(decisions, 3, 2, 5)
    decisions.decide(decisions.read(), [event(CLAIMED, 2, 3)])
    await_move(decisions, 3, 2, 0)


def test_a_root_where_nobody_ran_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no coordinator has run at"):
        open_decisions(str(tmp_path))


def test_the_owners_are_listed_and_can_be_asked_for_in_sql(root: str) -> None:
    decisions = cluster(root)
    decisions.decide(decisions.read(), [event(CLAIMED, 2, 1)])
    listed = {row.partition: (row.node_id, row.epoch) for row in list_partitions(root)}
    assert listed == {0: (1, 2), 1: (2, 3), 2: (1, 2), 3: (1, 2)}
    result = Catalog(root).query(
        "SELECT partition, node_id, epoch FROM coordinators ORDER BY partition"
    )
    assert {p: (node, epoch) for p, node, epoch in result.rows} == listed


def test_the_nodes_are_told_in_words(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decisions = cluster(root)
    lease = LeaseRenewal(root, 1, 60_000, lambda: 97_500)
    lease.renew()
    lease.stop()
    move(decisions, 3, 2)
    for events in ([event(STOPPED, 2)], [event(RELEASED, 1, 0)]):
        assert decisions.decide(decisions.read(), events) is not None
    monkeypatch.setattr(partitions, "clock_ms", lambda: 100_000)
    assert partitions.describe_nodes(root) == [
        "Node 1 at h:9092 is starting, renewed its lease 2.5 s ago, and owns 3 partitions (1-3).",
        "Node 2 at h:9092 has stopped, and owns no partition.",
        "Without an owner: 1 partition (0).",
    ]


def test_a_node_that_does_not_renew_its_lease_does_not_answer(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(root)
    lease = LeaseRenewal(root, 1, 60_000, lambda: 100_000)
    lease.renew()
    lease.stop()
    monkeypatch.setattr(partitions, "clock_ms", lambda: 216_000)
    silent, *_ = partitions.describe_nodes(root)
    assert silent.startswith("Node 1 at h:9092 has not renewed its lease for 116 s, and owns 4")
    assert "Start a coordinator if it has ended." in silent
    monkeypatch.setattr(partitions, "clock_ms", lambda: 130_000)
    assert "renewed its lease 30.0 s ago" in partitions.describe_nodes(root)[0]


def test_packed_decisions_are_the_same_cluster_state(root: str) -> None:
    decisions = cluster(root)
    for partition in (1, 2, 3) * 3:
        decisions.decide(decisions.read(), [event(CLAIMED, 2, partition)])
    state = decisions.read()
    (result,) = (r for r in retain(root, UpkeepSettings(), clock_ms()) if r.table == "coordinators")
    assert (result.files_before, result.files_after) == (12, 1)
    assert DecisionLog(root).read() == state
    assert decisions.decide(state, [event(STOPPED, 2)]) is not None, "decisions go on behind it"
    assert DecisionLog(root).read() == decisions.read()


def files_of(root: str) -> set[Path]:
    return set(Path(root, "coordinators").glob("*.parquet"))


def test_a_look_reads_only_what_others_decided_since_the_last_one(root: str) -> None:
    decisions, other = cluster(root), DecisionLog(root)
    other.read()
    for file in files_of(root):
        file.unlink()
    decided = decisions.decide(decisions.read(), [event(CLAIMED, 2, 3)])
    assert other.read() == decided, "of the files of before nothing is read"


def test_decisions_that_were_packed_before_they_were_read_are_not_missed(root: str) -> None:
    decisions, other = cluster(root), DecisionLog(root)
    other.read()
    for partition in (1, 2, 3) * 3:
        decisions.decide(decisions.read(), [event(CLAIMED, 2, partition)])
    before = files_of(root)
    retain(root, UpkeepSettings(), clock_ms())
    for file in before:
        file.unlink()
    decided = decisions.decide(decisions.read(), [event(STARTED, 2)])
    assert other.read() == decided
    assert other.starts_of(2) == [1, 12]


def test_nodes_agree_and_go_on_after_an_earlier_version_of_the_table_was_restored(
    root: str,
) -> None:
    """By an operator who wants to undo something, beside nodes that run."""
    decisions, other = cluster(root), DecisionLog(root)
    earlier = DeltaTable(f"{root}/coordinators").version()
    decisions.decide(decisions.read(), [event(CLAIMED, 2, 3)])
    assert other.read().partitions[3].owner == 2
    DeltaTable(f"{root}/coordinators").restore(earlier)
    assert decisions.read() == other.read() == DecisionLog(root).read()
    assert other.read().partitions[3].owner == 1
    # With an epoch that is taken it would be refused, and so would every later one.
    assert decisions.decide(decisions.read(), [event(READY, 2)]) is not None
    decided, _ = decisions.decide_until(
        lambda now: [] if now.partitions[2].owner == 2 else [event(CLAIMED, 2, 2)]
    )
    assert decided.partitions[2].owner == 2
    assert decided == other.read() == DecisionLog(root).read()


def test_a_restore_between_a_look_and_a_decision_is_seen_at_the_next_look(root: str) -> None:
    decisions = cluster(root)
    earlier = DeltaTable(f"{root}/coordinators").version()
    seen = decisions.decide(decisions.read(), [event(CLAIMED, 2, 3)])
    assert seen is not None
    DeltaTable(f"{root}/coordinators").restore(earlier)
    assert decisions.decide(seen, [event(READY, 2)]) is not None
    assert decisions.read() == DecisionLog(root).read()


def test_a_log_that_was_cleaned_up_beyond_a_reader_is_read_from_its_checkpoint(root: str) -> None:
    decisions, other = cluster(root), DecisionLog(root)
    other.read()
    decided = decisions.decide(decisions.read(), [event(CLAIMED, 2, 3)])
    table = Path(root, "coordinators")
    DeltaTable(table).create_checkpoint()
    for commit in (table / "_delta_log").glob("*.json"):
        commit.unlink()
    assert other.read() == decided


def test_decisions_of_an_older_release_have_fewer_columns(root: str) -> None:
    decisions = cluster(root)
    schema = COORDINATORS.schema
    for dropped in ("to_node", "reason"):
        schema = schema.remove(schema.get_field_index(dropped))
    older = to_arrow(COORDINATORS, [CoordinatorEvent(2_000, 3, CLAIMED, 2, 3, "h", 9092)])
    table = Appender(f"{root}/coordinators")
    assert table.append(older.select(schema.names), DECISIONS, 3)
    assert decisions.read().partitions[3].owner == 2
    assert decisions.read() == DecisionLog(root).read()


def test_decisions_that_only_delta_rs_can_tell_are_read_through_it(root: str) -> None:
    decisions, other = cluster(root), DecisionLog(root)
    other.read()
    DeltaTable(f"{root}/coordinators").alter.set_table_properties(
        {"delta.enableChangeDataFeed": "true"}
    )
    decided = decisions.decide(decisions.read(), [event(STARTED, 2)])
    assert decided is not None
    assert other.read() == DecisionLog(root).read() == decided
    assert other.starts_of(2) == [1, 3]


def test_a_decision_of_which_nobody_knows_whether_it_is_there_is_known_for_ones_own(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that took its own claim for somebody else's would never serve the partitions."""
    decisions = cluster(root)
    before = decisions.read()
    create = Log.create

    def unknown(self: Log, commit: Commit, version: int) -> None:
        monkeypatch.setattr(Log, "create", create)
        create(self, commit, version)
        # Before the first one looks again.
        other = DecisionLog(root)
        assert other.decide(other.read(), [event(CLAIMED, 2, 5)]) is not None
        raise CommitStateUnknown("no answer")

    monkeypatch.setattr(Log, "create", unknown)
    decided = decisions.decide(before, [event(STARTED, 1), event(CLAIMED, 1, 4)])
    assert decided is not None
    assert decided.epoch == before.epoch + 1 == decisions.starts_of(1)[-1]
    assert set(decided.owned_by(1)) == {0, 1, 2, 3, 4}
    after = decisions.read()
    assert (set(after.owned_by(1)), set(after.owned_by(2))) == ({0, 1, 2, 3, 4}, {5})
    assert after == DecisionLog(root).read()


def test_a_decision_that_somebody_else_was_faster_with_is_refused_after_a_failure_too(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = cluster(root)
    before = decisions.read()
    create = Log.create

    def lose(self: Log, commit: Commit, version: int) -> None:
        monkeypatch.setattr(Log, "create", create)
        other = DecisionLog(root)
        assert other.decide(other.read(), [event(CLAIMED, 2, 4)]) is not None
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Log, "create", lose)
    assert decisions.decide(before, [event(CLAIMED, 1, 4)]) is None
    assert set(decisions.read().owned_by(2)) == {4}


def test_a_look_at_the_decisions_that_fails_is_made_again(root: str) -> None:
    for fails in (1, 2, 3):
        decisions, other = cluster(root), DecisionLog(root)
        other.decide(other.read(), [event(CLAIMED, 2, 6)])
        with failing_reads(root, fails, TOO_MANY_FILES) as reads:
            found = decisions.read()
        assert reads.has_failed
        assert found == other.read()


def test_decisions_of_a_table_that_was_made_anew_end_the_node(root: str) -> None:
    log = DecisionLog(root)
    log.read()
    shutil.rmtree(Path(root, "coordinators"))
    ensure_table(root, COORDINATORS)
    with pytest.raises(
        TableReplacedError, match=r"coordinators was replaced .*Restart this process"
    ):
        log.read()
