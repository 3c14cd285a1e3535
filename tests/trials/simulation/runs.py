"""Runs of plans in separate processes; a run that fails is shrunk to the faults that it needs."""

from __future__ import annotations

import hashlib
import multiprocessing
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.pipeline.interrupt import interrupted_by_signals
from tests.trials.simulation.faults import Fault
from tests.trials.simulation.troubles import KINDS
from tests.trials.simulation.world import Broken, World

# The end of a run that broke a promise, and that many lines before it.
_STORY_LINES = 40


class Outcome(Struct, frozen=True):
    """The outcome of a run of a plan, a Struct with `seed`, `faults` and `without`.

    `broken` null: every promise was kept.
    """

    plan: Any
    broken: Broken | None
    digest: str
    counts: dict[str, int]
    checks: dict[str, int]
    faults: list[str]
    story: list[str]
    simulated_s: float
    seconds: float
    longest_wait_ms: float = 0.0


def outcome_of(
    plan: Any, world: World, faults: Sequence[Fault], seconds: float, longest_wait_ms: float
) -> Outcome:
    """Return the outcome of a run in this world, with these faults."""
    return Outcome(
        plan=plan,
        broken=world.broken,
        digest=world.digest,
        counts=world.counts,
        checks=world.checks,
        faults=[fault.line() for fault in faults],
        story=world.story,
        simulated_s=world.now / 1000,
        seconds=seconds,
        longest_wait_ms=longest_wait_ms,
    )


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """Provide a new folder, in memory if possible: a commit takes a fifth of a disk's time."""
    memory = Path("/dev/shm")
    where = str(memory) if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=where) as folder:
        yield Path(folder)


class Totals(Struct, frozen=True):
    """The totals of many runs."""

    counts: Counter[str]
    checks: dict[str, int]
    digest: str
    simulated_s: float
    longest_wait_ms: float

    @property
    def reads_failed(self) -> dict[str, int]:
        """The number of failed reads by kind, without kinds that did not fail."""
        found = {kind: self.counts[f"reads failed: {kind}"] for kind in KINDS}
        return {kind: count for kind, count in found.items() if count}


def sum_up(outcomes: Sequence[Outcome]) -> Totals:
    """Add up the outcomes of many runs."""
    counts: Counter[str] = Counter()
    checks: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome.counts)
        checks.update(outcome.checks)
    digests = "".join(outcome.digest for outcome in outcomes)
    return Totals(
        counts,
        dict(sorted(checks.items())),
        hashlib.sha256(digests.encode()).hexdigest()[:16],
        sum(outcome.simulated_s for outcome in outcomes),
        max((outcome.longest_wait_ms for outcome in outcomes), default=0.0),
    )


class Finding(Struct, frozen=True):
    """A run that broke a promise: `faults` are those without which it would not have."""

    seed: int
    events: int
    promise: str
    text: str
    digest: str
    faults: list[str]
    story: list[str]
    again: str

    def lines(self) -> Iterator[str]:
        """Yield the finding as text."""
        yield f"BROKEN: {self.promise}"
        yield f"  {self.text}"
        yield f"  faults that it takes ({len(self.faults)}):"
        yield from (f"    {line}" for line in self.faults)
        yield "  what happened before it:"
        yield from (f"    {line}" for line in self.story)
        yield f"  again: {self.again}"


def run_plans(
    plans: Sequence[Any],
    run: Callable[[Any], Outcome],
    again: Callable[[Any], tuple[int, str]],
    processes: int,
    say: Callable[[str], None],
) -> tuple[list[Outcome], list[Finding]]:
    """Run plans, and shrink those that broke a promise.

    `again` gives a plan's events, and the command that runs it again. SIGINT or SIGTERM ends it
    early: the outcomes are of the runs that have ended. A second one ends the shrinking.
    """
    outcomes: list[Outcome] = []
    with interrupted_by_signals():
        try:
            for outcome in _outcomes(plans, run, processes):
                outcomes.append(outcome)
                said = "kept" if outcome.broken is None else f"BROKEN: {outcome.broken.text}"
                say(
                    f"{len(outcomes)} of {len(plans)} runs: seed {outcome.plan.seed}: {said} "
                    f"({outcome.seconds:.1f} s)"
                )
        except KeyboardInterrupt:
            say(f"interrupted after {len(outcomes)} of {len(plans)} runs")
        failed = [outcome for outcome in outcomes if outcome.broken is not None]
        return outcomes, [_finding(each, again) for each in _shrunk(failed, run, say)]


def _shrunk(
    failed: list[Outcome], run: Callable[[Any], Outcome], say: Callable[[str], None]
) -> list[Outcome]:
    """Shrink the runs that broke a promise; an interrupt ends the shrinking."""
    shrunk: list[Outcome] = []
    try:
        for outcome in failed:
            shrunk.append(shrink(outcome, run, say))
    except KeyboardInterrupt:
        say(f"{len(failed) - len(shrunk)} of {len(failed)} broken runs are not shrunk")
    return shrunk + failed[len(shrunk) :]


def shrink(
    failed: Outcome,
    run: Callable[[Any], Outcome],
    say: Callable[[str], None] = lambda _text: None,
) -> Outcome:
    """Leave faults out, many at once and then one by one, while the same promise is broken."""
    assert failed.broken is not None
    best = failed
    at_once = failed.plan.faults
    while at_once:
        for first in range(0, failed.plan.faults, at_once):
            more = frozenset(range(first, first + at_once)) - best.plan.without
            if not more:
                continue
            tried = run(replace(best.plan, without=best.plan.without | more))
            if tried.broken is not None and tried.broken.promise == failed.broken.promise:
                best = tried
                say(f"seed {best.plan.seed}: it takes no more than {len(best.faults)} faults")
        if not best.faults:
            break
        at_once //= 2
    return best


def _leave_interrupts() -> None:
    """Ignore interrupts: a terminal sends them to all processes, and the parent reports."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _outcomes(
    plans: Sequence[Any], run: Callable[[Any], Outcome], processes: int
) -> Iterator[Outcome]:
    if processes == 1 or len(plans) == 1:
        yield from map(run, plans)
        return
    # Not forked: the engines have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(plans)), context, _leave_interrupts) as pool:
        try:
            yield from pool.map(run, plans)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise


def _finding(outcome: Outcome, again: Callable[[Any], tuple[int, str]]) -> Finding:
    plan, broken = outcome.plan, outcome.broken
    assert broken is not None
    events, command = again(plan)
    without = sorted(number for number in plan.without if number < plan.faults)
    if without:
        command += f" --without {','.join(map(str, without))}"
    return Finding(
        seed=plan.seed,
        events=events,
        promise=broken.promise,
        text=broken.text,
        digest=outcome.digest,
        faults=outcome.faults,
        story=outcome.story[-_STORY_LINES:],
        again=command,
    )
