"""The simulation of the whole system: the same seed is the same run, and what it finds."""

from __future__ import annotations

import os
import subprocess
import sys

from coordinator.group.dedup import RequestWindow
from pipeline.delta.commit import Commit
from pipeline.trials.simulation import faults
from pipeline.trials.simulation.simulation import Outcome, Plan
from pipeline.trials.simulation.trial import run_quietly, shrink
from pipeline.trials.simulation.world import Broken

# Faults of which the coordinator is known to survive every one.
SURVIVED = frozenset(faults.KINDS) - {faults.SET_CLOCK, faults.RETUNE}


def test_the_same_seed_is_the_same_run_in_another_process_too():
    """Neither Python's hash seed nor the machine's pace takes part."""
    script = (
        "from pipeline.trials.simulation.simulation import Plan\n"
        "from pipeline.trials.simulation.trial import run_quietly\n"
        "print(run_quietly(Plan(3, events=1500, faults=6)).digest)"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = run_quietly(Plan(3, events=1500, faults=6))
    assert elsewhere.stdout.split()[-1] == here.digest
    assert here.digest != run_quietly(Plan(4, events=1500, faults=6)).digest


def test_a_run_that_fails_is_shrunk_to_the_faults_that_it_takes():
    def run(plan: Plan) -> Outcome:
        left = [number for number in range(plan.faults) if number not in plan.without]
        broken = Broken("a promise", "so") if {2, 5} <= set(left) else None
        return Outcome(plan, broken, "", {}, {}, [str(number) for number in left], [], 0.0, 0.0)

    assert shrink(run(Plan(1, faults=8)), run).faults == ["2", "5"]


# --- faults that were mended: without the mend, the simulation finds them -------------------------


def test_it_finds_that_an_unknown_outcome_deletes_the_file_of_a_commit_that_stands(monkeypatch):
    def forgotten(self: Commit, target: object, error: OSError) -> None:
        self.may_stand = False
        raise error

    monkeypatch.setattr(Commit, "_settle", forgotten)
    commit_faults = frozenset({faults.COMMIT})
    outcome = run_quietly(Plan(2, events=4_000, nodes=1, faults=8, kinds=commit_faults))
    assert outcome.broken is not None
    assert "is gone" in outcome.broken.text


def test_it_finds_that_a_repeated_commit_is_forgotten_after_1024_requests(monkeypatch):
    monkeypatch.setattr(RequestWindow, "__contains__", lambda _self, _digest: False)
    outcome = run_quietly(Plan(1, nodes=1, faults=0))
    assert outcome.broken is not None
    assert "was answered twice" in outcome.broken.text


# --- and with the mends, every promise is kept ----------------------------------------------------


def test_one_node_keeps_its_promises_whatever_fails():
    for seed in (1, 2):
        outcome = run_quietly(Plan(seed, nodes=1, kinds=SURVIVED))
        assert outcome.broken is None, "\n".join([*outcome.faults, *outcome.story])
        assert outcome.counts["crashes"]
