"""Whether a coordinator stays what it was: half an hour of the load of `answer`.

Every minute is told: its answer times, the most memory that the coordinator's processes took, and
the most files that its tables had, those of the newest version and those of the log. The most,
because packing takes up to 200 MB for some seconds, and files pile up until it: one look a minute
would meet that by chance. Upkeep packs ten times in the run, so that a table that only grows is
told from one that is packed. Two things go by their age, an hour at least, so that half an hour
sees them grow: the files that no version needs any more (`vacuum.retention.ms`), which are not
counted, and the logs of all tables but `requests`, which are counted but not judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from msgspec import Struct

from pipeline.bench.fleet import Fleet
from pipeline.bench.memory import Memory, forget_peaks, peaks_of
from pipeline.bench.paced import GROUPS, MEMBERS, p50_and_p99, pace
from pipeline.bench.rebalance import form
from pipeline.bench.report import Aim, Column, Report
from pipeline.bench.running import COORDINATOR, WARM_UP_S, running
from pipeline.delta.table import open_delta
from pipeline.node.process import CoordinatorProcess
from pipeline.tables.store import table_uri
from schemas.tables import GROUP_EVENTS, OFFSETS_TOPIC, REQUESTS, RESPONSES

MINUTES = 30.0
WATCHED = (REQUESTS, RESPONSES, OFFSETS_TOPIC, GROUP_EVENTS)
_SAMPLES = 30
# So often are files counted for a sample.
_COUNTS = 6
_LONGEST_SAMPLE_S = 60.0
_PACKS = 10
_LEAST_PACK_MS = 10_000
# A table of fewer files is small, however its files come and go.
_FEW_FILES = 50


class Sample(Struct):
    """One stretch of the run, which ended at `at_s`.

    `memory` is its peaks; `files` and `log_files` are the most that were seen of each table.
    """

    at_s: Annotated[float, Column("minute", ".1f", unit=60)]
    answers: Annotated[int, Column("answers")]
    p50_ms: Annotated[float, Column("p50 ms", ".0f")]
    p99_ms: Annotated[float, Column("p99 ms", ".0f", bar="")]
    memory: Memory
    files: Annotated[dict[str, int], Column("files", ",.0f")]
    log_files: Annotated[dict[str, int], Column("logs", ",.0f")]


class SoakReport(Report):
    """The run. `ratio_p99` is the last sixth's over the first's.

    Growth is the most of the last third over the most of the middle one: 1 is flat, 1.5 is steady
    growth from nothing. Of the files it is the most that a table, or the log of `requests`,
    grew.
    """

    seconds: float
    answers: int
    unanswered: int
    first_p99_ms: float
    last_p99_ms: float
    ratio_p99: float
    driver_growth: float
    jvm_growth: float
    files_growth: float
    samples: list[Sample]

    def title(self) -> str:
        """How many were answered."""
        return f"{self.answers:,} answers, {self.unanswered} requests without one"

    def rows(self) -> list[Sample]:
        """All samples."""
        return self.samples

    def aims(self) -> list[Aim]:
        """Neither answer times nor memory nor files grow."""
        return [
            Aim("p99 of the last sixth over the first's", "", 1.2, self.ratio_p99),
            Aim("growth of the driver's Python", "", 1.1, self.driver_growth),
            Aim("growth of its JVM", "", 1.1, self.jvm_growth),
            Aim("growth of the files of a table", "", 1.2, self.files_growth),
        ]


def bench_soak(
    minutes: float = MINUTES, say: Callable[[str], None] = print, warm_up: float = WARM_UP_S
) -> SoakReport:
    """Run for so many minutes after the warm-up, s; `say` hears of each minute. Raises Failure."""
    seconds = 60 * minutes
    pack_ms = max(_LEAST_PACK_MS, int(1000 * seconds / _PACKS))
    say(f"soak: {minutes:g} minutes after {warm_up:.0f} s")
    with running(COORDINATOR, f'[upkeep]\n"retain.interval.ms" = {pack_ms}\n') as (process, root):
        fleet = Fleet(root, GROUPS, MEMBERS, "soak")
        form(fleet)
        pace(fleet, warm_up, process)
        with _watching(process, root, seconds, say) as watch:
            times, unanswered = pace(fleet, seconds, process, watch.look)
    return report(seconds, times, unanswered, watch.sixths, watch.samples())


def report(
    seconds: float,
    times: list[float],
    unanswered: int,
    sixths: Sequence[int],
    samples: list[Sample],
) -> SoakReport:
    """What a run's answer times, s, and samples say; `sixths`: how many had come by each sixth."""
    _, first = p50_and_p99(times[: sixths[0]], "the first sixth")
    _, last = p50_and_p99(times[sixths[4] :], "the last sixth")
    tables = [table.name for table in WATCHED]
    return SoakReport(
        seconds,
        len(times),
        unanswered,
        first,
        last,
        last / first,
        growth([sample.memory.driver for sample in samples]),
        growth([sample.memory.jvm for sample in samples]),
        max(
            *(_files_growth([sample.files[name] for sample in samples]) for name in tables),
            _files_growth([sample.log_files[REQUESTS.name] for sample in samples]),
        ),
        samples,
    )


def growth(values: Sequence[int]) -> float:
    """The most of the last third over the most of the middle one; 1 if that is not known."""
    third = len(values) // 3
    middle = max(values[third : 2 * third], default=0)
    return max(values[2 * third :], default=0) / middle if middle else 1.0


def _files_growth(counts: Sequence[int]) -> float:
    return growth([max(_FEW_FILES, count) for count in counts])


class _Watch:
    """Takes a sample now and then, in a thread of its own: the load must not wait for it."""

    def __init__(
        self,
        process: CoordinatorProcess,
        root: str,
        seconds: float,
        say: Callable[[str], None],
        pool: ThreadPoolExecutor,
    ) -> None:
        self.sixths: list[int] = []
        self._process = process
        self._root = root
        self._seconds = seconds
        self._say = say
        self._pool = pool
        self._every = min(_LONGEST_SAMPLE_S, seconds / _SAMPLES)
        self._counts: list[Future[None]] = []
        self._samples: list[Future[Sample]] = []
        self._seen = 0
        # The most of each table since the last sample, for the pool's one thread.
        self._files: dict[str, int] = {}
        self._log_files: dict[str, int] = {}
        forget_peaks(process.pid)
        self._began = time.perf_counter()

    def look(self, times: list[float]) -> None:
        """See whether it is time."""
        at = time.perf_counter() - self._began
        while len(self.sixths) < 5 and at >= self._seconds / 6 * (len(self.sixths) + 1):
            self.sixths.append(len(times))
        if at >= self._every / _COUNTS * (len(self._counts) + 1):
            self._counts.append(self._pool.submit(self._count))
        if at >= self._every * (len(self._samples) + 1) and len(times) > self._seen + 1:
            part, self._seen = times[self._seen :], len(times)
            self._samples.append(self._pool.submit(self._sample, at, part))

    def samples(self) -> list[Sample]:
        """All samples, once they are there."""
        for each in self._counts:
            each.result()
        return [each.result() for each in self._samples]

    def _count(self) -> None:
        for table in WATCHED:
            uri = table_uri(self._root, table)
            for most, count in ((self._files, _live_files), (self._log_files, _log_files)):
                most[table.name] = max(most.get(table.name, 0), count(uri))

    def _sample(self, at: float, times: list[float]) -> Sample:
        p50, p99 = p50_and_p99(times, "a sample", least=2)
        memory = peaks_of(self._process.pid)
        forget_peaks(self._process.pid)
        files, self._files = self._files, {}
        log_files, self._log_files = self._log_files, {}
        self._say(
            f"soak: {at / 60:.1f} min, p50 {p50:.0f} ms, p99 {p99:.0f} ms, "
            f"Python {memory.driver / 1e6:.0f} MB, JVM {memory.jvm / 1e6:.0f} MB, "
            f"{sum(files.values()):,} files, {sum(log_files.values()):,} of logs"
        )
        return Sample(at, len(times), p50, p99, memory, files, log_files)


def _live_files(uri: str) -> int:
    return int(pa.table(open_delta(uri).get_add_actions()).num_rows)


def _log_files(uri: str) -> int:
    return sum(1 for _ in (Path(uri) / "_delta_log").iterdir())


@contextmanager
def _watching(
    process: CoordinatorProcess, root: str, seconds: float, say: Callable[[str], None]
) -> Iterator[_Watch]:
    with ThreadPoolExecutor(1) as pool:
        yield _Watch(process, root, seconds, say, pool)
