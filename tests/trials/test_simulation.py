"""Tests of the simulation of the whole system: a seed gives the same run, and bugs are found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, product
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from group_coordinator.coordinator.group import batch, offset_commit
from group_coordinator.coordinator.group.batch import BatchResult
from group_coordinator.coordinator.group.dedup import RequestWindow
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.group.offset_commit import _validate
from group_coordinator.coordinator.group.partition import PartitionSet
from group_coordinator.coordinator.group.timers import shift_timers
from group_coordinator.pipeline.delta import appender
from group_coordinator.pipeline.delta.commit import Bound, Commit
from group_coordinator.pipeline.delta.identity import SameTable
from group_coordinator.pipeline.delta.log import Log
from group_coordinator.pipeline.delta.storage import CommitStateUnknown
from group_coordinator.pipeline.node import bootstrap, resumption
from group_coordinator.pipeline.node.waiting_requests import RecordedRequests
from group_coordinator.pipeline.stream.offset import Bootstrap, Selection
from group_coordinator.pipeline.stream.pinned_settings import PinnedSettings
from group_coordinator.pipeline.tables.offsets_log import OffsetsLog
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.tables import OFFSETS_TOPIC, REQUESTS, TOPICS
from tests.trials.simulation import faults, runs
from tests.trials.simulation.engine import PLANNED
from tests.trials.simulation.faults import Fault
from tests.trials.simulation.files import (
    CRASH_AFTER,
    DATA_FILE,
    PAUSE,
    STAND_STILL,
    CommitFault,
)
from tests.trials.simulation.promises import (
    ANSWERED_SOON,
    FENCED,
    GENERATION_FENCED,
    OFFSETS_RISE,
    PROMISES,
    RECORDED_ONCE,
    REPLACED,
    SAME_AGAIN,
    SESSIONS,
)
from tests.trials.simulation.recreated import AWAY, EMPTY, HOWS, OLDER, TABLES, Replacement
from tests.trials.simulation.runs import Outcome, shrink
from tests.trials.simulation.simulation import PARTITIONS, Plan
from tests.trials.simulation.trial import (
    EVENTS_A_RUN,
    PACES,
    plans_for,
    run_quietly,
    run_trial,
)
from tests.trials.simulation.troubles import KINDS, ReadFault
from tests.trials.simulation.world import NO_BUG, Broken

pytestmark = pytest.mark.slow


@pytest.mark.full
@pytest.mark.parametrize(
    ("events", "nodes", "faults"),
    [
        (300, 2, 4),
        pytest.param(150, 1, 2, marks=pytest.mark.long),
        pytest.param(1000, 2, 6, marks=pytest.mark.long),
    ],
)
def test_the_same_seed_is_the_same_run_in_another_process_too(events, nodes, faults):
    """Neither Python's hash seed nor the machine's pace takes part."""
    plan = Plan(3, events=events, nodes=nodes, faults=faults)
    script = (
        "from tests.trials.simulation.simulation import Plan\n"
        "from tests.trials.simulation.trial import run_quietly\n"
        f"print(run_quietly({plan}).digest)"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = run_quietly(plan)
    assert elsewhere.stdout.split()[-1] == here.digest
    assert here.digest != run_quietly(replace(plan, seed=4)).digest


def test_a_run_that_fails_is_shrunk_to_the_faults_that_it_takes():
    def run(plan: Plan) -> Outcome:
        left = [number for number in range(plan.faults) if number not in plan.without]
        broken = Broken("a promise", "so") if {2, 5} <= set(left) else None
        return Outcome(plan, broken, "", {}, {}, [str(number) for number in left], [], 0.0, 0.0)

    assert shrink(run(Plan(1, faults=8)), run).faults == ["2", "5"]


def test_a_seed_draws_its_faults_and_all_of_them_every_replacement():
    drawn = [
        faults.draw_faults(Random(seed), 36, frozenset(), 0.0, 30_000.0, 3, PARTITIONS, 4)
        for seed in (*range(40), 7)
    ]
    assert drawn[-1] == drawn[7]
    replaced = {(f.replaced.table, f.replaced.how) for each in drawn for f in each if f.replaced}
    assert replaced == set(product(TABLES, HOWS))


def ended(plan: Plan) -> Outcome:
    return Outcome(plan, None, "d", {"requests": plan.events}, {}, [], [], 1.0, 1.0)


def lost(plan: Plan) -> Outcome:
    return replace(ended(plan), broken=Broken("a promise", "so"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_trial_that_is_interrupted_reports_on_the_runs_that_ended(monkeypatch, number):
    def two_runs(plans: Sequence[Plan], *_: object) -> Iterator[Outcome]:
        yield from map(ended, plans[:2])
        os.kill(os.getpid(), number)
        yield from map(ended, plans[2:])

    monkeypatch.setattr(runs, "_outcomes", two_runs)
    # As a shell starts a job in the background.
    before = signal.signal(number, signal.SIG_IGN)
    try:
        said: list[str] = []
        report = run_trial(1, 1_000_000, say=said.append)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)
    first, second = plans_for(1, 1_000_000)[:2]
    assert (report.interrupted, report.runs) == (True, 2)
    assert report.requests == first.events + second.events
    assert said[-1].startswith("interrupted after 2 of ")
    monkeypatch.setattr(runs, "_outcomes", lambda plans, *_: map(ended, plans))
    assert not run_trial(1, 1_000_000).interrupted


def test_an_interrupt_of_the_shrinking_reports_the_runs_as_they_failed(monkeypatch):
    def interrupted(*_: object) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "_outcomes", lambda plans, *_: map(lost, plans))
    monkeypatch.setattr(runs, "shrink", interrupted)
    report = run_trial(1, 200_000)
    seeds = [plan.seed for plan in plans_for(1, 200_000)]
    assert [finding.seed for finding in report.findings] == seeds
    assert len(seeds) > 1
    assert not report.interrupted, "every run has ended"


def test_a_trial_has_runs_of_every_pace_and_no_more_than_it_takes():
    plans = plans_for(5, 500_000)
    assert [plan.seed for plan in plans] == list(range(5, 5 + len(plans)))
    assert {plan.pace for plan in plans} == set(PACES)
    assert all(plan.events == EVENTS_A_RUN * plan.pace for plan in plans)
    assert sum(p.events for p in plans[:-1]) < 500_000 <= sum(p.events for p in plans)


def test_a_trial_that_refused_too_little_proves_nothing(monkeypatch):
    def counted(plan: Plan) -> Outcome:
        counts = {"requests": plan.events, "epochs refused": 1, "stale commits": refused}
        return replace(ended(plan), counts=counts)

    monkeypatch.setattr(runs, "_outcomes", lambda plans, *_: map(counted, plans))
    refused = 1
    assert not run_trial(1, 1_000_000).unproven()
    refused = 0
    (told,) = run_trial(1, 1_000_000).unproven()
    assert told.startswith("commits of a stale generation were refused 0 times in 5 runs")


def test_a_finding_can_be_run_again_alone():
    for seed in (1, 2, 3):
        (alone,) = plans_for(seed, EVENTS_A_RUN * PACES[seed % len(PACES)])
        assert alone == plans_for(seed, 10_000_000)[0]


# --- faults that were mended: without the mend, the simulation finds them -------------------------


def broken(plan: Plan) -> Broken:
    outcome = run_quietly(plan)
    assert outcome.broken is not None, "\n".join(outcome.story)
    return outcome.broken


# Node 2's stream is paused while partitions move to it.
LAGGING = Plan(
    3,
    events=8_000,
    nodes=2,
    script=(
        Fault(6_100, faults.COMMIT, commit=CommitFault("node 2", PLANNED, PAUSE, 3_000)),
        *(Fault(7_000, faults.MOVE, node_id=2, number=each) for each in range(PARTITIONS)),
    ),
)


@pytest.mark.full
def test_it_finds_that_a_claimed_partition_s_requests_are_decided_again(monkeypatch):
    """The stream of the new owner has not reached the former owner's responses."""

    def of_every_version(self: Selection, _version: int) -> PartitionSet | None:
        return None if self.partitions is None else PartitionSet(self.partitions, self.of)

    monkeypatch.setattr(Selection, "at", of_every_version)
    # A group would know the commits and joins among them again; not so the heartbeats.
    monkeypatch.setattr(bootstrap, "write_remembered_requests", lambda *_: [])
    assert "was answered twice" in broken(LAGGING).text


# Partitions move back and forth between two nodes with running queries.
MOVING = Plan(
    1,
    events=8_000,
    nodes=2,
    script=tuple(
        Fault(3_500 + 1_500 * turn, faults.MOVE, node_id=1 + turn % 2, number=each)
        for turn in range(3)
        for each in range(PARTITIONS // 2)
    ),
)


@pytest.mark.full
def test_it_finds_that_requests_are_missed_while_a_bootstrap_is_written(monkeypatch):
    """The stream of the new owner is ahead of the bootstrap's coverage."""
    monkeypatch.setattr(Selection, "missed_by", lambda *_: {})
    assert broken(MOVING).promise == SESSIONS, "a heartbeat among them"


@pytest.mark.full
def test_it_finds_that_a_claimed_partition_s_log_offsets_are_those_of_a_former_claim(monkeypatch):
    monkeypatch.setattr(OffsetsLog, "reread", lambda *_: None)
    assert broken(MOVING).promise == OFFSETS_RISE


@pytest.mark.full
def test_it_finds_that_a_clock_that_steps_back_gives_groups_up(monkeypatch):
    """A batch at a time before its claim was attributed to another coordinator."""
    process, began = BatchMachine.process, {}

    def by_times(
        self: BatchMachine, group_id: str | None, state: bytes | None, events: list[str], now: int
    ) -> BatchResult:
        if now <= began.setdefault(self._claim_of(group_id), now - 1):
            return BatchResult(None, None, None)
        return process(self, group_id, state, events, now)

    monkeypatch.setattr(BatchMachine, "process", by_times)
    step = Fault(3_000, faults.SET_CLOCK, node_id=1, ms=-20_000)
    assert broken(Plan(1, events=2_000, nodes=1, script=(step,))).promise == ANSWERED_SOON


@pytest.mark.full
def test_it_finds_that_an_unknown_outcome_deletes_the_file_of_a_commit_that_stands(monkeypatch):
    create = Log.create

    def forgotten(self: Log, commit: Commit, version: int) -> None:
        try:
            create(self, commit, version)
        except CommitStateUnknown:
            commit.may_be_committed = False
            raise

    monkeypatch.setattr(Log, "create", forgotten)
    plan = Plan(2, events=4_000, nodes=1, faults=8, kinds=frozenset({faults.COMMIT}))
    assert broken(plan).promise == NO_BUG


@pytest.mark.full
def test_it_finds_that_a_repeated_commit_is_forgotten_after_1024_requests(monkeypatch):
    monkeypatch.setattr(RequestWindow, "holds_any", lambda _self, _digests: False)
    assert "was answered twice" in broken(Plan(1, nodes=1, faults=0)).text


# Streaming checkpoints are lost while a producer repeats commits.
TAKEN_OVER = Plan(
    2,
    events=3_000,
    nodes=1,
    script=tuple(Fault(1_500 * n, faults.LOSE_CHECKPOINT, node_id=1) for n in range(1, 6)),
)


@pytest.mark.full
def test_it_finds_that_a_group_forgets_at_a_take_over_what_was_answered(monkeypatch):
    monkeypatch.setattr(bootstrap, "write_remembered_requests", lambda *_: [])
    assert "was answered twice" in broken(TAKEN_OVER).text


# Node 1 is killed between the records of a batch and its answers, and loses its checkpoint.
UNANSWERED = Plan(
    2,
    events=4_000,
    nodes=1,
    script=(
        Fault(2_000, faults.COMMIT, commit=CommitFault("node 1", OFFSETS_TOPIC.name, CRASH_AFTER)),
        Fault(2_400, faults.LOSE_CHECKPOINT, node_id=1),
    ),
)


@pytest.mark.full
def test_it_finds_that_a_request_is_recorded_again_that_was_not_answered(monkeypatch):
    monkeypatch.setattr(RecordedRequests, "with_records", lambda _self, events: events)
    assert broken(UNANSWERED).promise == RECORDED_ONCE


# Node 1's streaming checkpoint is copied, and the copy is put back later.
SET_BACK = Plan(
    2,
    events=4_000,
    nodes=1,
    script=tuple(Fault(at, faults.RESTORE_CHECKPOINT, node_id=1) for at in (2_000, 6_000)),
)


@pytest.mark.full
def test_an_older_copy_of_a_streaming_checkpoint_breaks_no_promise():
    outcome = run_quietly(SET_BACK)
    assert outcome.broken is None, "\n".join(outcome.story)
    assert outcome.counts["streaming checkpoints restored"] == 1


@pytest.mark.full
def test_it_finds_that_an_older_copy_of_a_streaming_checkpoint_is_gone_on_with(monkeypatch):
    monkeypatch.setattr(resumption, "last_written", lambda *_: -1)
    assert broken(SET_BACK).promise == SAME_AGAIN


# Between the two the node loses its streaming checkpoint, and begins another stream.
SET_BACK_TO_ANOTHER = replace(
    SET_BACK, script=(*SET_BACK.script, Fault(3_500, faults.LOSE_CHECKPOINT, node_id=1))
)


@pytest.mark.full
def test_a_copy_from_before_another_stream_breaks_no_promise():
    outcome = run_quietly(SET_BACK_TO_ANOTHER)
    assert outcome.broken is None, "\n".join(outcome.story)


@pytest.mark.full
def test_it_finds_that_a_copy_from_before_another_stream_is_gone_on_with(monkeypatch):
    monkeypatch.setattr(resumption, "is_newest_stream", lambda *_: True)
    assert broken(SET_BACK_TO_ANOTHER)


# Tables are replaced while two nodes run, one after the other.
def replacing(*replacements: Replacement) -> Plan:
    script = [Fault(1_500, faults.TOPICS)]
    script += [
        Fault(2_500 + 7_000 * number, faults.REPLACE, replaced=replacement)
        for number, replacement in enumerate(replacements)
    ]
    return Plan(2, events=1_500, nodes=1, script=tuple(script))


MADE_AGAIN = replacing(
    Replacement(REQUESTS.name, EMPTY, 300.0), Replacement(TOPICS.name, EMPTY, 0.0)
)
SET_BACK_TABLES = replacing(
    Replacement(REQUESTS.name, OLDER, 1_000.0), Replacement(TOPICS.name, AWAY, 1_000.0)
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("plan", "counts"),
    [
        (MADE_AGAIN, {"requests deleted and made again": 1, "topics deleted and made again": 1}),
        (
            SET_BACK_TABLES,
            {"requests set back to an older copy": 1, "topics renamed away and back": 1},
        ),
    ],
)
def test_tables_that_are_replaced_break_no_promise(plan: Plan, counts: dict[str, int]):
    outcome = run_quietly(plan)
    assert outcome.broken is None, "\n".join(outcome.story)
    assert outcome.counts.items() >= counts.items()
    assert outcome.counts["queries ended: TableReplacedError"] == 1
    assert outcome.counts["requests lost with their table"]
    assert outcome.checks[REPLACED]


@pytest.mark.full
@pytest.mark.parametrize("plan", [MADE_AGAIN, SET_BACK_TABLES])
def test_it_finds_that_nobody_looks_whether_a_table_is_another_one(monkeypatch, plan: Plan):
    monkeypatch.setattr(SameTable, "check", lambda *_: None)
    monkeypatch.setattr(SameTable, "is_other", lambda *_: None)
    assert broken(plan).promise == REPLACED


RETUNED = Plan(1, events=1_500, nodes=1, script=(Fault(1_500, faults.RETUNE, node_id=1),))


@pytest.mark.full
def test_it_finds_that_a_batch_is_run_again_by_other_settings(monkeypatch):
    monkeypatch.setattr(PinnedSettings, "_of_planned", lambda self, *_: self._present())
    assert broken(RETUNED).promise == SAME_AGAIN


# Node 1 begins without its streaming checkpoint, and is killed in its first batch.
CUT_OFF = Plan(
    1,
    events=4_000,
    nodes=1,
    script=(
        Fault(1_500, faults.LOSE_CHECKPOINT, node_id=1),
        Fault(1_501, faults.COMMIT, commit=CommitFault("node 1", PLANNED, CRASH_AFTER)),
    ),
)


@pytest.mark.full
def test_it_finds_that_a_first_batch_is_run_again_from_the_beginning_of_the_log(monkeypatch):
    """Spark asks the source where the first batch begins, and again when it is run again."""
    monkeypatch.setattr(resumption, "prepared_bootstrap", lambda uri: Bootstrap(uri, 0, 0))
    assert "was answered twice" in broken(CUT_OFF).text


# Clients end, and with them their members' heartbeats, right before a clock is set back.
SILENT = Plan(
    1,
    events=2_000,
    nodes=1,
    script=(
        Fault(3_000, faults.SILENCE, number=0),
        Fault(3_100, faults.SET_CLOCK, node_id=1, ms=-3_000),
    ),
)


@pytest.mark.full
def test_a_session_is_not_shorter_by_what_the_clock_is_set_back(monkeypatch):
    """By the clock alone, a member that ended before the step would be heard of in the future."""
    monkeypatch.setattr(batch, "shift_timers", lambda group, ms: shift_timers(group, 2 * ms))
    assert broken(SILENT).promise == SESSIONS


# A batch of node 1 is paused until node 2 has taken over, and then continues.
OUTLIVED = Plan(
    1,
    events=9_000,
    nodes=2,
    script=(
        Fault(6_000, faults.ZOMBIE, commit=CommitFault("an owner", DATA_FILE, STAND_STILL, 4_000)),
    ),
)


@pytest.mark.full
def test_it_finds_that_a_node_writes_that_was_taken_for_dead(monkeypatch):
    monkeypatch.setattr(appender, "Bound", lambda app_id, _at_most: Bound(app_id, 2**63))
    assert broken(OUTLIVED).promise == FENCED


@pytest.mark.full
def test_it_finds_that_a_commit_of_a_stale_generation_is_accepted(monkeypatch):
    def validate(*arguments: Any) -> ErrorCode:
        code = _validate(*arguments)
        return ErrorCode.NONE if code is ErrorCode.ILLEGAL_GENERATION else code

    monkeypatch.setattr(offset_commit, "_validate", validate)
    assert broken(OUTLIVED).promise == GENERATION_FENCED


# A poll of the responses fails, on any of their files.
UNREAD = Plan(
    1,
    events=4_000,
    nodes=1,
    script=tuple(
        Fault(1_000 + 900 * number, faults.READS, reads=ReadFault("slow reader", kind, number))
        for number, kind in enumerate(KINDS)
    ),
)


# --- and with the mends, every promise is kept ----------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ("plan", "met"),
    [
        (LAGGING, "moves asked for"),
        (MOVING, "decisions: released"),
        (TAKEN_OVER, "requests repeated"),
        (UNANSWERED, "answers by records"),
        (RETUNED, "batches run again"),
        (CUT_OFF, "batches run again"),
        (SILENT, SESSIONS),
        (OUTLIVED, "epochs refused"),
        (UNREAD, "reads failed"),
    ],
)
def test_the_same_schedules_keep_every_promise(plan: Plan, met: str):
    kept = run_quietly(plan)
    assert kept.broken is None, "\n".join(kept.story)
    assert (kept.counts | kept.checks)[met]


def test_some_thousand_requests_beside_faults_keep_every_promise():
    kept = run_quietly(Plan(11, events=2_500, nodes=2, faults=8))
    assert kept.broken is None, "\n".join(kept.story)
    assert kept.counts["requests"] > 2_500
    assert kept.counts["faults"] == 8


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("events", "runs", "requests", "sometimes"),
    [
        (20_000, 1, 20_000, {SAME_AGAIN, SESSIONS}),
        pytest.param(80_000, 2, 100_000, {SAME_AGAIN}, marks=pytest.mark.long),
    ],
)
def test_many_thousand_requests_beside_faults_keep_every_promise(events, runs, requests, sometimes):
    """Run 20,000 requests; in the long tier two runs of different pace, with 105,000 in all.

    The longest run has ten million: `python -m tests.trials simulate --events 10000000`.
    """
    report = run_trial(3, events, processes=os.cpu_count() or 1)
    assert not report.findings, "\n".join(chain.from_iterable(f.lines() for f in report.findings))
    assert report.runs == runs
    assert report.requests >= requests
    assert min(report.crashes, report.moves, report.faults) > 0
    if runs > 1:
        assert not report.unproven()
        assert set(report.reads_failed) == set(KINDS)
    # One batch in some hundreds is run again: `RETUNED` and `CUT_OFF` are sure to; `SILENT` is sure
    # to have members that end.
    assert set(report.checks) | sometimes == PROMISES - {NO_BUG}
