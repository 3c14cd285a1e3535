"""Stability of response times, memory and files: half an hour of the load of `answer`.

Each minute's sample has its response times, the peaks of memory of the coordinator's processes, and
the most files of its tables, in the newest version and in the log. Peaks are taken because packing
takes up to 200 MB for some seconds, and files accumulate until then; a sample of one instant would
miss both. Upkeep packs ten times in the run, which distinguishes a table that only grows from a
packed one. Two kinds of files are removed by age, after an hour at least, and so only grow in half
an hour. Those that no version needs (`vacuum.retention.ms`) are not counted. The logs of all tables
except `requests` are counted, without an aim.
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

from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import GROUP_EVENTS, OFFSETS_TOPIC, REQUESTS, RESPONSES
from tests.bench.memory import Memory, forget_peaks, peaks_of
from tests.bench.paced import GROUPS, MEMBERS, p50_and_p99, pace
from tests.bench.report import Aim, Column, Report
from tests.bench.running import COORDINATOR, WARM_UP_S, running
from tests.support.fleet import Fleet
from tests.support.process import KillableCoordinator
from tests.support.rebalance import form

MINUTES = 30.0
WATCHED = (REQUESTS, RESPONSES, OFFSETS_TOPIC, GROUP_EVENTS)
_SAMPLES = 30
# How many times files are counted for one sample.
_COUNTS = 6
_LONGEST_SAMPLE_S = 60.0
_PACKS = 10
_LEAST_PACK_MS = 10_000
# Fewer files than this count as this many: a few files more or less are no growth.
_FEW_FILES = 50


class Sample(Struct):
    """One stretch of the run, up to `at_s` after its start.

    `memory` has the stretch's peaks, `files` and `log_files` the highest counts by table.
    """

    at_s: Annotated[float, Column("minute", "g", unit=60)]
    answers: Annotated[int, Column("answers")]
    p50_ms: Annotated[float, Column("p50 ms", ".0f")]
    p99_ms: Annotated[float, Column("p99 ms", ".0f", bar="")]
    memory: Memory
    files: Annotated[dict[str, int], Column("files", ",.0f")]
    log_files: Annotated[dict[str, int], Column("logs", ",.0f")]


class SoakReport(Report):
    """The run. `ratio_p99` is the last sixth's over the first's.

    Growth is the maximum of the last third over that of the middle third: 1 is flat, 1.5 is steady
    growth from nothing. `files_growth` is that of the table, or log of `requests`, that grew most.
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
        """Return the number of responses."""
        return f"{self.answers:,} answers, {self.unanswered} requests without one"

    def rows(self) -> list[Sample]:
        """Return all samples."""
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
    """Sum up a run by its answer times, s, and samples.

    `sixths` has the number of answers by the end of each of the first five sixths."""
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
    """Return the ratio of the maxima of the last and middle thirds; 1 if the middle has none."""
    third = len(values) // 3
    middle = max(values[third : 2 * third], default=0)
    return max(values[2 * third :], default=0) / middle if middle else 1.0


def _files_growth(counts: Sequence[int]) -> float:
    return growth([max(_FEW_FILES, count) for count in counts])


class _Watch:
    """A sampler in a separate thread, so that the load does not wait."""

    def __init__(
        self,
        process: KillableCoordinator,
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
        # The highest counts by table since the last sample; only the pool's one thread uses them.
        self._files: dict[str, int] = {}
        self._log_files: dict[str, int] = {}
        forget_peaks(process.pid)
        self._began = time.perf_counter()

    def look(self, times: list[float]) -> None:
        """Start a count of files, or a sample, if it is due."""
        at = time.perf_counter() - self._began
        while len(self.sixths) < 5 and at >= self._seconds / 6 * (len(self.sixths) + 1):
            self.sixths.append(len(times))
        if at >= self._every / _COUNTS * (len(self._counts) + 1):
            self._counts.append(self._pool.submit(self._count))
        if at >= self._every * (len(self._samples) + 1) and len(times) > self._seen + 1:
            part, self._seen = times[self._seen :], len(times)
            self._samples.append(self._pool.submit(self._sample, at, part))

    def samples(self) -> list[Sample]:
        """Wait for all samples, and return them."""
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
    process: KillableCoordinator, root: str, seconds: float, say: Callable[[str], None]
) -> Iterator[_Watch]:
    with ThreadPoolExecutor(1) as pool:
        yield _Watch(process, root, seconds, say, pool)
