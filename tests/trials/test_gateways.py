"""The simulation of gateways keeps its promises, is repeatable, and sees each promise broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from msgspec.structs import replace

from group_coordinator.pipeline import topics as topics_of_roots
from group_coordinator.pipeline.delta.identity import SameTable
from group_coordinator.pipeline.gateway import topic_logs
from group_coordinator.pipeline.gateway.acl_cache import AclCache
from group_coordinator.pipeline.gateway.apis import topic_changes
from group_coordinator.pipeline.gateway.request_context import RequestContext
from group_coordinator.pipeline.gateway.topic_logs import TopicLogs
from group_coordinator.pipeline.topics import (
    LogAppender,
    NewBatch,
    Outcome,
    ProducerIdManager,
    Record,
    TableTopics,
    log_appender,
)
from group_coordinator.pipeline.topics.index import TopicIndex
from group_coordinator.pipeline.topics.indexer import Indexer
from group_coordinator.pipeline.topics.producer_state import ProducerStateManager
from group_coordinator.pipeline.upkeep import topic_retention
from group_coordinator.schemas.tables import ACLS, GATEWAYS
from tests.trials.gateways import faults, simulation
from tests.trials.gateways.ledger import Ledger
from tests.trials.gateways.log import Log
from tests.trials.gateways.promises import (
    ACKNOWLEDGED,
    ANSWERED_SOON,
    DELETED,
    DENIED,
    DENSE,
    ENDS,
    GROWN,
    IDS,
    KEPT,
    ONCE,
    PROMISES,
    READ_IN_ORDER,
)
from tests.trials.gateways.simulation import Plan, simulate
from tests.trials.gateways.trial import run_gateways
from tests.trials.simulation.faults import COMMIT, READS, REPLACE, STOP, Fault
from tests.trials.simulation.files import PAUSE, CommitFault
from tests.trials.simulation.recreated import EMPTY, OLDER, Replacement
from tests.trials.simulation.troubles import BROKEN, ReadFault
from tests.trials.simulation.world import NO_BUG, Broken, Violation, World

QUIET = Plan(1, records=1_500, faults=0)
LONGER = Plan(1, records=8_000, faults=0)


def broken(plan: Plan) -> Broken:
    outcome = simulate(plan)
    assert outcome.broken is not None, "\n".join(outcome.story)
    return outcome.broken


@pytest.mark.full
def test_the_same_seed_is_the_same_run_in_another_process_too() -> None:
    """Neither Python's hash seed nor the machine's pace takes part, nor where objects lie."""
    plan = Plan(5, records=1_000, script=(Fault(2_500.0, STOP, 1),))
    script = (
        "from tests.trials.gateways.simulation import Plan, simulate\n"
        "from tests.trials.simulation.faults import Fault\n"
        "from group_coordinator.pipeline.gateway.connection import Connection\n"
        "Connection.__hash__ = lambda self: id(self) * 2_654_435_761 & 0xFFFF_FFFF\n"
        f"print(simulate({plan}).digest)"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = simulate(plan)
    assert elsewhere.stdout.split()[-1] == here.digest
    assert here.digest != simulate(Plan(6, records=1, faults=0)).digest


# --- each promise is seen to be broken ------------------------------------------------------------


@pytest.mark.full
def test_it_finds_that_an_offset_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    to_rows = log_appender.to_rows
    monkeypatch.setattr(
        log_appender, "to_rows", lambda topic, batches, _base, now: to_rows(topic, batches, 0, now)
    )
    assert broken(QUIET).promise == DENSE


@pytest.mark.full
def test_it_finds_that_records_are_acknowledged_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    append = LogAppender.append

    def elsewhere(self: LogAppender, batches: Sequence[NewBatch], until: float) -> list[Outcome]:
        outcomes = append(self, batches, until)
        return [*outcomes[1:], outcomes[0]]

    monkeypatch.setattr(LogAppender, "append", elsewhere)
    assert broken(QUIET).promise == ACKNOWLEDGED


# A commit takes longer than the producers' timeout, so they resend their batches.
LATE = Plan(
    1,
    records=2_000,
    gateways=2,
    script=tuple(
        Fault(
            2_000 + 500 * number, COMMIT, number, 0, commit=CommitFault(name, where, PAUSE, 4_000)
        )
        for number, name in ((1, "gateway 1"), (2, "gateway 2"))
        for where in [faults.RECORDS]
    ),
)


@pytest.mark.full
def test_it_finds_that_a_batch_that_is_repeated_is_written_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProducerStateManager, "find_duplicate", lambda *_: None)
    monkeypatch.setattr(ProducerStateManager, "check", lambda *_: None)
    assert broken(LATE).promise == ONCE


@pytest.mark.full
def test_it_finds_that_what_another_gateway_has_shown_is_out_of_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A consumer comes from a gateway that knows more records than this one."""

    def read(self: TableTopics, topic: str, partition: int, *rest: int) -> Sequence[Record]:
        return self._reader(topic, partition).read(partition, *rest)

    monkeypatch.setattr(TableTopics, "read", read)
    # No other component polls between two of its polls.
    monkeypatch.setattr(topic_logs, "_POLL_EVERY_S", 5.0)
    assert broken(Plan(1, records=20_000, faults=0)).promise == READ_IN_ORDER


@pytest.mark.full
def test_it_finds_that_the_rows_of_a_commit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Indexer._take

    def without_third(self: Indexer, batch: Any, index: Any, commit: Any, count: int) -> bool:
        # Whichever gateway takes it: the other one would make up for it.
        return commit.version % 3 == 2 or take(self, batch, index, commit, count)

    monkeypatch.setattr(Indexer, "_take", without_third)
    assert broken(LONGER).promise == READ_IN_ORDER


@pytest.mark.full
def test_it_finds_that_an_end_is_told_that_was_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicLogs, "refresh", lambda *_: None)
    assert broken(Plan(1, records=8_000, faults=0)).promise == ENDS


@pytest.mark.full
def test_it_finds_that_somebody_does_what_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestContext, "authorize", lambda *_: True)
    assert broken(QUIET).promise == DENIED


@pytest.mark.full
def test_partitions_of_a_topic_that_is_deleted_may_still_be_told(tmp_path: Path) -> None:
    """A gateway may not know the deletion yet. Each number of a topic without one is checked."""
    world = World(1)
    ledger = Ledger(world, tmp_path)
    ledger.logs = {"t": [Log("t-1", "t", 0)], "u": [Log("u-1", "u", 0)]}
    ledger.counts = {"t": 0, "u": 3}
    ledger.on_partitions("t", 3, 0)
    ledger.on_partitions("u", 3, 0)
    assert world.broken is None
    with pytest.raises(Violation):
        ledger.on_partitions("u", 4, 0)
    assert world.broken is not None and world.broken.promise == GROWN


@pytest.mark.full
def test_it_finds_that_acls_are_obeyed_that_are_long_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    take = AclCache._apply

    def at_first(self: AclCache, acls: Any) -> None:
        if self.acls is None:
            take(self, acls)

    monkeypatch.setattr(AclCache, "_apply", at_first)
    assert broken(Plan(1, records=60_000, faults=0)).promise == DENIED


# The ACLs are deleted, and made again without those of two clients.
REMADE = Plan(
    2,
    records=1_000,
    producers=2,
    consumers=1,
    script=(Fault(4_000.0, REPLACE, 1, replaced=Replacement(ACLS.name, EMPTY, 500.0)),),
)


@pytest.mark.full
def test_acls_that_are_made_again_are_obeyed() -> None:
    kept = simulate(REMADE)
    assert kept.broken is None, "\n".join(kept.story)
    assert kept.counts["acls deleted and made again"] == 1


@pytest.mark.full
def test_other_tables_that_are_replaced_keep_every_promise() -> None:
    # Longer than between two renewals of a lease: otherwise the copy is the same table.
    restored = Replacement(GATEWAYS.name, OLDER, 3_000.0)
    remade = Replacement(faults.RECORDS, EMPTY, 200.0)
    script = (
        Fault(2_500.0, REPLACE, 1, replaced=restored),
        Fault(6_500.0, REPLACE, 1, replaced=remade),
    )
    kept = simulate(replace(REMADE, script=script))
    assert kept.broken is None, "\n".join(kept.story)
    assert [kept.counts[f"{each.table} {each.how}"] for each in (restored, remade)] == [1, 1]


@pytest.mark.full
def test_it_finds_that_records_are_written_into_a_table_that_was_created_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SameTable, "check", lambda *_: None)
    monkeypatch.setattr(SameTable, "is_other", lambda *_: None)
    fault = Fault(4_000.0, REPLACE, 1, replaced=Replacement(faults.RECORDS, EMPTY, 0.0))
    assert broken(replace(REMADE, script=(fault,))).promise == DELETED


@pytest.mark.full
def test_it_finds_that_acls_of_a_table_that_was_deleted_are_obeyed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SameTable, "check", lambda *_: None)
    monkeypatch.setattr(SameTable, "is_other", lambda *_: None)
    assert broken(REMADE).promise == DENIED


@pytest.mark.full
def test_it_finds_that_a_topic_s_table_does_not_say_that_it_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics_of_roots, "mark_deleted", lambda *_: None)
    assert broken(Plan(1, records=20_000, faults=0)).promise == DELETED


@pytest.mark.full
def test_it_finds_that_a_producer_id_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerIdManager, "_take_block", lambda _: 0)
    assert broken(QUIET).promise == IDS


@pytest.mark.full
def test_it_finds_that_records_are_removed_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_retention, "expired", lambda partition, *_: partition.segments[:1])
    assert broken(LONGER).promise == KEPT


@pytest.mark.full
def test_it_finds_that_what_vacuum_left_is_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    mark_gone = TopicIndex.mark_gone

    def all_of_it(self: TopicIndex, _missing: Any) -> None:
        mark_gone(self, {file.path for file in self.files})

    monkeypatch.setattr(TopicIndex, "mark_gone", all_of_it)
    assert broken(replace(LONGER, records=20_000)).promise == KEPT


@pytest.mark.full
def test_it_finds_that_partitions_are_not_added_as_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_changes, "alter_topic", lambda *_: None)
    assert broken(LONGER).promise == GROWN


@pytest.mark.full
def test_it_finds_that_what_a_user_s_table_has_grown_by_is_not_indexed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, begun = Indexer.step, WeakSet[Indexer]()

    def only_once(self: Indexer, partitions: int) -> bool:
        if self in begun:
            return False
        begun.add(self)
        return step(self, partitions)

    monkeypatch.setattr(Indexer, "step", only_once)
    monkeypatch.setattr(simulation, "LONGEST_WAIT_MS", 8_000.0)
    assert broken(QUIET).promise == ANSWERED_SOON


# A poll of the topics fails on each gateway.
UNREAD = Plan(
    1,
    records=1_500,
    script=tuple(
        Fault(2_000, READS, number, reads=ReadFault(f"gateway {number}", BROKEN, times=3))
        for number in (1, 2)
    ),
)


@pytest.mark.full
def test_it_finds_a_bug_that_is_only_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(LogAppender, "append", fail)
    assert broken(QUIET).promise == NO_BUG


# --- and with the code as it is, every promise is kept --------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("plan", [QUIET, LATE, UNREAD], ids=["quiet", "late", "unread"])
def test_the_same_schedules_keep_every_promise(plan: Plan) -> None:
    kept = simulate(plan)
    assert kept.broken is None, "\n".join(kept.story)
    assert kept.counts["records read"] >= kept.counts["acknowledged"]


@pytest.mark.full
def test_some_seeds_keep_every_promise() -> None:
    """The long run has a million records: `python -m tests.trials gateways --events 1000000`."""
    report = run_gateways(3, 12_000)
    assert not report.findings, "\n".join(chain.from_iterable(f.lines() for f in report.findings))
    assert set(report.checks) == PROMISES - {NO_BUG}
    assert report.counts["faults"] == 10
    assert report.counts["topics deleted"]
