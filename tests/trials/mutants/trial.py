"""Trial of mutants: break one place of the product at a time, and run the tests named for it.

All named tests must first pass on the unbroken product. A mutant is killed if one of its tests
fails. It survives if they pass: then no test covers the promise, unless the mutant is declared as
equivalent.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from msgspec import Struct

from group_coordinator.pipeline.errors import Failure
from tests.trials.mutants.copied import Copied, copy_checkout
from tests.trials.mutants.mutant import Mutant, read_table

_TOP = Path(__file__).parents[3]
KILLED = "killed"
SURVIVED = "survived"
EQUIVALENT = "equivalent"
NOT_JUDGED = "not judged"
_OUTCOMES = (KILLED, EQUIVALENT, SURVIVED, NOT_JUDGED)
# Pytest's exit statuses. Any other means that no test was run, or not as it is to be.
_PASSED, _FAILED = 0, 1
# No test of a mutant may take longer than all tests did before, and never less than this, s.
_LEAST_LIMIT_S = 60.0


class Verdict(Struct, frozen=True):
    """The outcome of a mutant. `why` explains why it is equivalent, or was not judged."""

    promise: str
    file: str
    tests: tuple[str, ...]
    outcome: str
    seconds: float
    why: str = ""


class MutantsReport(Struct, frozen=True):
    """The outcomes of all mutants. `unbroken_s` is the time of all tests on the unbroken product.

    `cpu_s` is the CPU time of all runs, because `seconds` depends on the load of the machine.
    `interrupted` is set if the trial ended before all of its mutants were tried.
    """

    verdicts: list[Verdict]
    tests: int
    unbroken_s: float
    seconds: float
    cpu_s: float
    interrupted: bool = False

    def rows(self) -> list[tuple[str, str]]:
        """Return the report as rows of a figure and its value."""
        outcomes = Counter(verdict.outcome for verdict in self.verdicts)
        return [
            ("mutants", f"{len(self.verdicts)}"),
            *((f"mutants: {outcome}", f"{outcomes[outcome]}") for outcome in _OUTCOMES),
            ("files with mutants", f"{len({verdict.file for verdict in self.verdicts})}"),
            ("tests that are named", f"{self.tests}"),
            ("seconds of these tests with nothing broken", f"{self.unbroken_s:.0f}"),
            ("seconds of CPU", f"{self.cpu_s:.0f}"),
            ("seconds", f"{self.seconds:.0f}"),
        ]

    def unproven(self) -> list[str]:
        """Return the mutants that survived or were not judged."""
        return [
            f"{each.file}: {each.outcome}: {each.promise}{each.why and f' ({each.why})'}"
            for each in self.verdicts
            if each.outcome not in (KILLED, EQUIVALENT)
        ]


def run_mutants(only: str | None, processes: int, say: Callable[[str], None]) -> MutantsReport:
    """Try the mutants of the table on copies of this checkout, so many at once.

    `only` is a word of the promise or of the file. Raises Failure if there is none, or if a test
    fails with nothing broken.
    """
    mutants = [each for each in read_table() if (only or "") in f"{each.file} {each.promise}"]
    if not mutants:
        raise Failure(f"there is no mutant of {only!r}")
    with TemporaryDirectory(prefix="mutants-") as folder:
        places = [Path(folder, str(number)) for number in range(processes)]
        copies = [copy_checkout(_TOP, place) for place in places]
        return try_mutants(copies, mutants, say)


def try_mutants(
    copies: Sequence[Copied], mutants: Sequence[Mutant], say: Callable[[str], None]
) -> MutantsReport:
    """Try mutants on copies of a checkout. Raises Failure if a test fails with nothing broken."""
    began, cpu_before_s = time.monotonic(), _cpu_s()
    first = copies[0]
    if stale := [fault for mutant in mutants for fault in mutant.faults(first.folder)]:
        raise Failure("; ".join(stale))
    first.check_imports({mutant.file for mutant in mutants})
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    status, said = first.run_tests(tests, None)
    if status != _PASSED:
        raise Failure(f"with nothing broken a test fails already: {said[-2_000:]}")
    unbroken_s = time.monotonic() - began
    say(f"with nothing broken all {len(tests)} pass, in {unbroken_s:.0f} s")
    limit_s = max(unbroken_s, _LEAST_LIMIT_S)
    free: SimpleQueue[Copied] = SimpleQueue()
    for copied in copies:
        free.put(copied)

    def judge(mutant: Mutant) -> Verdict:
        copied = free.get()
        try:
            return _judge(copied, mutant, limit_s)
        finally:
            free.put(copied)

    verdicts: list[Verdict] = []
    interrupted = False
    pool = ThreadPoolExecutor(len(copies), "mutants")
    try:
        for verdict in pool.map(judge, mutants):
            verdicts.append(verdict)
            done = f"{len(verdicts)} of {len(mutants)}: {verdict.outcome}, {verdict.seconds:.1f} s"
            say(f"{done}: {verdict.file}: {verdict.promise}")
    except KeyboardInterrupt:
        interrupted = True
    finally:
        pool.shutdown(cancel_futures=True)
    seconds, cpu_s = time.monotonic() - began, _cpu_s() - cpu_before_s
    return MutantsReport(verdicts, len(tests), unbroken_s, seconds, cpu_s, interrupted)


def _cpu_s() -> float:
    """Return the CPU time of all ended child processes, s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _judge(copied: Copied, mutant: Mutant, limit_s: float) -> Verdict:
    """Break the product in one place, and run the tests that must notice."""
    began = time.monotonic()
    text = (copied.folder / mutant.file).read_text("utf-8")
    with copied.with_text(mutant.file, mutant.changed(text)):
        status, said = copied.run_tests(mutant.tests, limit_s)
    outcome, why = outcome_of(mutant, status, said)
    seconds = time.monotonic() - began
    return Verdict(mutant.promise, mutant.file, mutant.tests, outcome, seconds, why)


def outcome_of(mutant: Mutant, status: int | None, said: str) -> tuple[str, str]:
    """Return a mutant's outcome by pytest's exit status (None: timeout), and the reason."""
    found = status == _FAILED or (status is None and mutant.hangs)
    if found and mutant.equivalent:
        return NOT_JUDGED, "its row says that nobody can tell it from the product, and a test does"
    if found:
        return KILLED, ""
    if status == _PASSED:
        return (EQUIVALENT if mutant.equivalent else SURVIVED), mutant.equivalent
    if status is None:
        return NOT_JUDGED, "its tests did not end, and its row does not say so"
    return NOT_JUDGED, f"pytest ended with status {status}: {said[-500:]}"
