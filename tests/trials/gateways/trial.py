"""Runs of gateways by many seeds, and their report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from tests.trials.gateways.faults import REPLACED
from tests.trials.gateways.simulation import Plan, simulate
from tests.trials.simulation.runs import Finding, Outcome, run_plans, sum_up

RECORDS_A_RUN = 50_000
# The rate of faults of a run of this length. A shorter run has no change of ACLs or topics.
_FAULTS_A_RECORD = Plan(0).faults / RECORDS_A_RUN


class GatewaysReport(Struct, frozen=True):
    """The result of many runs. `checks` counts the checks of each promise.

    `counts` has events by the names on the page. `longest_wait_ms` is the longest wait of a request
    for its response after the last fault.
    """

    seed: int
    runs: int
    counts: dict[str, int]
    reads_failed: dict[str, int]
    simulated_s: float
    seconds: float
    digest: str
    checks: dict[str, int]
    findings: list[Finding]
    longest_wait_ms: float
    interrupted: bool = False

    def rows(self) -> list[tuple[str, str]]:
        """Return the report as rows of a figure and its value."""
        checks = [(f"checks: {name}", f"{count:,}") for name, count in self.checks.items()]
        return self.figures() + checks

    def figures(self) -> list[tuple[str, str]]:
        """Return the figures without the checks."""
        records = self.counts.get("records", 0)
        return [
            ("runs", f"{self.runs:,}"),
            *((name, f"{count:,}") for name, count in self.counts.items()),
            *((f"reads that failed: {kind}", f"{n:,}") for kind, n in self.reads_failed.items()),
            ("longest wait after the last fault, s", f"{self.longest_wait_ms / 1000:.1f}"),
            ("simulated time, s", f"{self.simulated_s:,.0f}"),
            ("seconds", f"{self.seconds:,.1f}"),
            ("records a second", f"{records / self.seconds if self.seconds else 0.0:,.0f}"),
            ("digest", self.digest),
            ("promises broken", f"{len(self.findings)}"),
        ]


# The figures of a report, by the names of the world's counts.
_TOLD = {
    "records": "records",
    "acknowledged": "records that were acknowledged",
    "records read": "records that consumers read",
    "rows of users": "rows of users' tables",
    "tables optimized": "users' tables optimized",
    "users' files vacuumed": "files of users' tables that VACUUM deleted",
    "files vacuumed": "packed or expired files of topics that VACUUM deleted",
    "records removed": "records removed by retention",
    "positions begun anew": "positions that were out of range",
    "partitions added": "partitions added",
    "requests": "requests",
    "answers": "answers",
    "commits": "commits",
    "topics deleted": "topics deleted",
    "ACLs changed": "ACLs changed",
    "produced: TOPIC_AUTHORIZATION_FAILED": "batches that were denied",
    "starts": "starts of a gateway",
    "crashes": "crashes",
    "stops in order": "stops in order",
    "faults": "faults",
    **{f"{table} {how}": f"{table} {how}" for table, how in REPLACED},
    "standstills": "processes that stood still",
    "reads": "reads",
    "reads failed": "reads that failed",
}


def run_gateways(
    seed: int,
    records: int,
    processes: int = 1,
    say: Callable[[str], None] = lambda _text: None,
    without: frozenset[int] = frozenset(),
) -> GatewaysReport:
    """Run as many runs as it takes for so many records, by seeds from `seed` on.

    `without` are faults that every run leaves out, by their numbers. SIGINT or SIGTERM ends the
    trial early, as `tests.trials.simulation.runs.run_plans` says.
    """
    began = time.perf_counter()
    plans = [replace(plan, without=without) for plan in plans_for(seed, records)]
    outcomes, findings = run_plans(plans, simulate, _again, processes, say)
    interrupted = len(outcomes) < len(plans)
    return _report(seed, outcomes, findings, time.perf_counter() - began, interrupted)


def plans_for(seed: int, records: int) -> list[Plan]:
    """Return the runs of a trial, which together have at least `records` records."""
    size = min(records, RECORDS_A_RUN)
    faults = max(1, round(size * _FAULTS_A_RECORD))
    return [
        Plan(seed + number, size, faults=faults) for number in range(ceil(records / RECORDS_A_RUN))
    ]


def _again(plan: Plan) -> tuple[int, str]:
    return (
        plan.records,
        f"python -m tests.trials gateways --seed {plan.seed} --events {plan.records}",
    )


def _report(
    seed: int,
    outcomes: Sequence[Outcome],
    findings: list[Finding],
    seconds: float,
    interrupted: bool,
) -> GatewaysReport:
    total = sum_up(outcomes)
    counts = total.counts
    return GatewaysReport(
        seed=seed,
        runs=len(outcomes),
        counts={told: counts[name] for name, told in _TOLD.items()},
        reads_failed=total.reads_failed,
        simulated_s=total.simulated_s,
        seconds=seconds,
        digest=total.digest,
        checks=total.checks,
        findings=findings,
        longest_wait_ms=total.longest_wait_ms,
        interrupted=interrupted,
    )
