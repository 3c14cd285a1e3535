"""The simulation of the whole system: the same seed is the same run, and what it finds."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain

import pytest

from coordinator.group import batch
from coordinator.group.batch import BatchMachine, BatchResult
from coordinator.group.dedup import RequestWindow
from coordinator.group.timers import shift_timers
from pipeline.delta.commit import Commit
from pipeline.node import handover, node
from pipeline.stream.bootstrap import Bootstrap
from pipeline.stream.pinned_settings import PinnedSettings
from pipeline.trials.simulation import faults
from pipeline.trials.simulation.checks import ANSWERED_ONCE, PROMISES, SAME_AGAIN, SESSIONS
from pipeline.trials.simulation.engine import PLANNED
from pipeline.trials.simulation.faults import Fault
from pipeline.trials.simulation.files import CRASH_AFTER, PAUSE, CommitFault
from pipeline.trials.simulation.simulation import PARTITIONS, Outcome, Plan
from pipeline.trials.simulation.trial import run_quietly, run_trial, shrink
from pipeline.trials.simulation.world import NO_BUG, Broken


def test_the_same_seed_is_the_same_run_in_another_process_too():
    """Neither Python's hash seed nor the machine's pace takes part."""
    script = (
        "from pipeline.trials.simulation.simulation import Plan\n"
        "from pipeline.trials.simulation.trial import run_quietly\n"
        "print(run_quietly(Plan(3, events=1000, nodes=2, faults=6)).digest)"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = run_quietly(Plan(3, events=1000, nodes=2, faults=6))
    assert elsewhere.stdout.split()[-1] == here.digest
    assert here.digest != run_quietly(Plan(4, events=1000, nodes=2, faults=6)).digest


def test_a_run_that_fails_is_shrunk_to_the_faults_that_it_takes():
    def run(plan: Plan) -> Outcome:
        left = [number for number in range(plan.faults) if number not in plan.without]
        broken = Broken("a promise", "so") if {2, 5} <= set(left) else None
        return Outcome(plan, broken, "", {}, {}, [str(number) for number in left], [], 0.0, 0.0)

    assert shrink(run(Plan(1, faults=8)), run).faults == ["2", "5"]


# --- faults that were mended: without the mend, the simulation finds them -------------------------


def broken(plan: Plan) -> Broken:
    outcome = run_quietly(plan)
    assert outcome.broken is not None, "\n".join(outcome.story)
    return outcome.broken


# Node 2's stream stands still, and meanwhile partitions are moved to it.
LAGGING = (
    Fault(6_000, faults.COMMIT, commit=CommitFault("node 2", PLANNED, PAUSE, 6_000)),
    *(Fault(6_600, faults.MOVE, node_id=2, number=partition) for partition in range(PARTITIONS)),
)


def test_it_finds_that_a_claimed_partition_s_requests_are_decided_again(monkeypatch):
    """The stream of the new owner lags behind what the former one has answered."""
    plan = Plan(1, nodes=2, script=LAGGING)
    kept = run_quietly(plan)
    assert kept.broken is None, "\n".join(kept.story)
    monkeypatch.setattr(node, "passed_over", lambda _uri, _partitions: {})
    assert "was answered twice" in broken(plan).text


def test_it_finds_that_a_clock_that_steps_back_gives_groups_up(monkeypatch):
    """A batch at a time before its claim was another coordinator's, it was thought."""
    process, began = BatchMachine.process, {}

    def by_times(
        self: BatchMachine, group_id: str | None, state: bytes | None, events: list[str], now: int
    ) -> BatchResult:
        if now <= began.setdefault(self._claim_of(group_id), now - 1):
            return BatchResult(None, None, None)
        return process(self, group_id, state, events, now)

    monkeypatch.setattr(BatchMachine, "process", by_times)
    step = Fault(6_000, faults.SET_CLOCK, node_id=1, ms=-20_000)
    assert broken(Plan(1, nodes=1, script=(step,))).promise == ANSWERED_ONCE


def test_it_finds_that_an_unknown_outcome_deletes_the_file_of_a_commit_that_stands(monkeypatch):
    def forgotten(self: Commit, target: object, error: OSError) -> None:
        self.may_stand = False
        raise error

    monkeypatch.setattr(Commit, "_settle", forgotten)
    plan = Plan(2, events=4_000, nodes=1, faults=8, kinds=frozenset({faults.COMMIT}))
    assert broken(plan).promise == NO_BUG


def test_it_finds_that_a_repeated_commit_is_forgotten_after_1024_requests(monkeypatch):
    monkeypatch.setattr(RequestWindow, "__contains__", lambda _self, _digest: False)
    assert "was answered twice" in broken(Plan(1, nodes=1, faults=0)).text


def test_it_finds_that_a_batch_is_run_again_by_other_settings(monkeypatch):
    plan = Plan(1, nodes=1, script=(Fault(6_000, faults.RETUNE, node_id=1),))
    kept = run_quietly(plan)
    assert kept.broken is None, "\n".join(kept.story)
    assert kept.counts["batches run again"]
    monkeypatch.setattr(PinnedSettings, "_of_planned", lambda self, *_: self._present())
    assert broken(plan).promise == SAME_AGAIN


# Node 1 begins without its streaming checkpoint, and is killed in its first batch.
CUT_OFF = (
    Fault(6_000, faults.LOSE_CHECKPOINT, node_id=1),
    Fault(6_001, faults.COMMIT, commit=CommitFault("node 1", PLANNED, CRASH_AFTER)),
)


def test_it_finds_that_a_first_batch_is_run_again_from_the_beginning_of_the_log(monkeypatch):
    """Spark asks the source where the first batch begins, and again when it is run again."""
    plan = Plan(1, events=8_000, nodes=1, script=CUT_OFF)
    kept = run_quietly(plan)
    assert kept.broken is None, "\n".join(kept.story)
    assert kept.counts["batches run again"]
    monkeypatch.setattr(handover, "prepared_bootstrap", lambda uri: Bootstrap(uri, 0, 0))
    assert "was answered twice" in broken(plan).text


# Clients end, and with them their members' heartbeats, right before a clock is set back.
SILENT = (
    Fault(6_000, faults.SILENCE, number=0),
    Fault(6_100, faults.SET_CLOCK, node_id=1, ms=-3_000),
)


def test_a_session_is_not_shorter_by_what_the_clock_is_set_back(monkeypatch):
    """By the clock alone, a member that ended before the step is heard of in the future."""
    plan = Plan(1, events=6_000, nodes=1, script=SILENT)
    kept = run_quietly(plan)
    assert kept.broken is None, "\n".join(kept.story)
    assert kept.checks[SESSIONS]
    monkeypatch.setattr(batch, "shift_timers", lambda group, ms: shift_timers(group, 2 * ms))
    assert broken(plan).promise == SESSIONS


# --- and with the mends, every promise is kept ----------------------------------------------------


@pytest.mark.timeout(900)
def test_a_hundred_thousand_requests_keep_every_promise():
    """The long run is ten million: `group-coordinator trial simulate --events 10000000`."""
    report = run_trial(1, 100_000, processes=os.cpu_count() or 1)
    assert not report.findings, "\n".join(chain.from_iterable(f.lines() for f in report.findings))
    assert report.requests >= 100_000
    assert min(report.crashes, report.moves, report.batches_run_again, report.faults) > 0
    assert set(report.checks) == PROMISES - {NO_BUG}
