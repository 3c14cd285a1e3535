"""Runs by many seeds, and their report; a run that fails is shrunk."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from tests.trials.simulation.recreated import WHATS
from tests.trials.simulation.runs import Finding, Outcome, run_plans, sum_up
from tests.trials.simulation.simulation import Plan, simulate

EVENTS_A_RUN = 25_000
# How many times as many requests come in the time of a run, by turns: batches small and large.
PACES = (1, 4, 16)
# A trial in which fewer fenced epochs and stale generations were refused proves nothing of them.
LEAST_REFUSALS_A_RUN = 1.0


class Report(Struct, frozen=True):
    """The result of many runs. `checks` counts the checks of each promise.

    `interrupted` is set if the trial ended before all of its runs. `reads` are those of nodes,
    clients and upkeep. `stale_commits` are commits of an ended generation, all refused.
    `longest_wait_ms` is the longest wait of a request for its response after the last fault.
    """

    seed: int
    runs: int
    requests: int
    answers: int
    commits: int
    batches: int
    batches_run_again: int
    starts: int
    crashes: int
    moves: int
    checkpoints_lost: int
    faults: int
    simulated_s: float
    seconds: float
    digest: str
    checks: dict[str, int]
    findings: list[Finding]
    interrupted: bool = False
    reads: int = 0
    reads_failed: dict[str, int] = field(default_factory=dict)
    standstills: int = 0
    epoch_checks: int = 0
    epochs_refused: int = 0
    stale_commits: int = 0
    longest_wait_ms: float = 0.0
    checkpoints_restored: int = 0
    tables_replaced: dict[str, int] = field(default_factory=dict)

    def unproven(self) -> list[str]:
        """Return the promises that too few faults have tested to prove anything."""
        least = LEAST_REFUSALS_A_RUN * self.runs
        return [
            f"{what} were refused {count} times in {self.runs} runs, fewer than {least:.0f} times"
            for what, count in (
                ("epochs that a later one had fenced", self.epochs_refused),
                ("commits of a stale generation", self.stale_commits),
            )
            if count < least
        ]

    @property
    def events_per_s(self) -> float:
        """Requests simulated in a second of the trial."""
        return self.requests / self.seconds if self.seconds else 0.0

    def rows(self) -> list[tuple[str, str]]:
        """Return the report as rows of a figure and its value."""
        checks = [(f"checks: {name}", f"{count:,}") for name, count in self.checks.items()]
        return self.figures() + checks

    def figures(self) -> list[tuple[str, str]]:
        """Return the figures without the checks."""
        figures: list[tuple[str, str]] = [
            (name.replace("_", " "), f"{getattr(self, name):,}")
            for name in (
                "runs",
                "requests",
                "answers",
                "commits",
                "batches",
                "batches_run_again",
                "starts",
                "crashes",
                "moves",
                "checkpoints_lost",
                "faults",
            )
        ]
        if self.reads:
            # Earlier reports lack these figures.
            figures.append(("reads", f"{self.reads:,}"))
            figures.append(("of them failed", f"{sum(self.reads_failed.values()):,}"))
            figures += [(f"  {kind}", f"{n:,}") for kind, n in self.reads_failed.items()]
            if self.checkpoints_restored or self.tables_replaced:
                restored = f"{self.checkpoints_restored:,}"
                figures.append(("streaming checkpoints set back to an older copy", restored))
            figures += [(what, f"{n:,}") for what, n in self.tables_replaced.items()]
            figures.append(("pauses of processes", f"{self.standstills:,}"))
            figures.append(("checks of an epoch before a commit", f"{self.epoch_checks:,}"))
            figures.append(("of them refused", f"{self.epochs_refused:,}"))
            figures.append(
                ("commits of a stale generation, all refused", f"{self.stale_commits:,}")
            )
            waited = f"{self.longest_wait_ms / 1000:.1f}"
            figures.append(("longest wait after the last fault, s", waited))
        figures.append(("simulated time, s", f"{self.simulated_s:,.0f}"))
        figures.append(("seconds", f"{self.seconds:,.1f}"))
        figures.append(("requests a second", f"{self.events_per_s:,.0f}"))
        figures.append(("digest", self.digest))
        figures.append(("promises broken", f"{len(self.findings)}"))
        return figures


def run_trial(
    seed: int,
    events: int,
    processes: int = 1,
    say: Callable[[str], None] = lambda _text: None,
    without: frozenset[int] = frozenset(),
) -> Report:
    """Run as many runs as it takes for so many requests, by seeds from `seed` on.

    `without` are faults that every run leaves out, by their numbers. SIGINT or SIGTERM ends the
    trial early: the report is of the runs that have ended. A second one ends the shrinking of runs
    that broke a promise.
    """
    began = time.perf_counter()
    plans = [replace(plan, without=without) for plan in plans_for(seed, events)]
    outcomes, findings = run_plans(plans, run_quietly, _again, processes, say)
    interrupted = len(outcomes) < len(plans)
    return _report(seed, outcomes, findings, time.perf_counter() - began, interrupted)


def _again(plan: Plan) -> tuple[int, str]:
    command = f"python -m tests.trials simulate --seed {plan.seed} --events {plan.events}"
    return plan.events, command


def plans_for(seed: int, events: int) -> list[Plan]:
    """Return the runs of a trial, which together have at least `events` events.

    A run's seed determines its pace and so its size; a trial with fewer events is a single run.
    """
    plans: list[Plan] = []
    while not plans or sum(plan.events for plan in plans) < events:
        number = seed + len(plans)
        pace = PACES[number % len(PACES)]
        plans.append(Plan(number, min(events, EVENTS_A_RUN * pace), pace))
    return plans


def run_quietly(plan: Plan) -> Outcome:
    """Run a plan, without the log of the code under test."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return simulate(plan)
    finally:
        logging.disable(before)
        # Free the run's world. It has databases, and Python does not count their memory when it
        # schedules a collection.
        gc.collect()


def _report(
    seed: int,
    outcomes: Sequence[Outcome],
    findings: list[Finding],
    seconds: float,
    interrupted: bool,
) -> Report:
    total = sum_up(outcomes)
    counts = total.counts
    return Report(
        seed=seed,
        runs=len(outcomes),
        requests=counts["requests"],
        answers=counts["answers"],
        commits=counts["commits"],
        batches=counts["batches"],
        batches_run_again=counts["batches run again"],
        starts=counts["starts"],
        crashes=counts["crashes"],
        moves=counts["decisions: released"],
        checkpoints_lost=counts["streaming checkpoints lost"],
        faults=counts["faults"],
        simulated_s=total.simulated_s,
        seconds=seconds,
        digest=total.digest,
        checks=total.checks,
        findings=findings,
        interrupted=interrupted,
        reads=counts["reads"],
        reads_failed=total.reads_failed,
        standstills=counts["standstills"],
        epoch_checks=counts["epoch checks"],
        epochs_refused=counts["epochs refused"],
        stale_commits=counts["stale commits"],
        checkpoints_restored=counts["streaming checkpoints restored"],
        tables_replaced={what: counts[what] for what in WHATS if counts[what]},
        longest_wait_ms=total.longest_wait_ms,
    )
