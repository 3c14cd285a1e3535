"""Query time of the views over a large log, by Spark natively and by DuckDB.

Each engine runs in a separate process, in turn over the same root, and answers two queries: the
committed offsets of all groups, and one group's history. The start of the process, of Spark and of
its first query is not measured. All engines must give the same result. Spark runs on this machine
alone, and on a standalone cluster of two executors of one core each, which also run on this
machine.

    python -m tests.bench.views spark | cluster | duckdb ROOT
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Struct
from pyspark.sql import SparkSession

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.session.spark_settings import DELTA, packages
from group_coordinator.pipeline.session.start import SessionStart
from group_coordinator.pipeline.settings import load_settings
from group_coordinator.pipeline.spark.views import register_views
from group_coordinator.pipeline.tables.store import ensure_tables
from tests.bench.compaction import make_log
from tests.bench.memory import peaks_of
from tests.bench.report import Column, Report
from tests.end_to_end.standalone import Standalone

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = 20_000_000
_KEYS_IN = 10
_VIEWS = ("committed_offsets", "offset_history")
_SUMS = "SELECT count(*) AS rows, CAST(sum(committed_offset) AS BIGINT) AS total"
# The driver is reachable from this machine only.
_ALONE = {
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_ALL = f"{_SUMS} FROM committed_offsets"
_ONE = f"{_SUMS} FROM offset_history WHERE group_id = 'group-7'"


class Answers(Struct, frozen=True):
    """The figures of an engine: seconds of both queries, peaks of memory, and results."""

    engine: Annotated[str, Column("engine")]
    all_groups: Annotated[float, Column("all groups, s", ".1f")]
    one_group: Annotated[float, Column("one group, s", ".1f")]
    peak: Annotated[int, Column("peak MB: Python", ".0f", unit=1e6)]
    jvm: Annotated[int, Column("JVM", ".0f", unit=1e6)]
    answers: list[list[int]]


class ViewsReport(Report):
    """The engines over one log of `records` rows of `size` bytes."""

    records: int
    size: int
    engines: list[Answers]

    def title(self) -> str:
        """Return the description of the data."""
        return f"{' and '.join(_VIEWS)} over {self.records:,} records, {self.size:,} bytes"

    def rows(self) -> list[Answers]:
        """DuckDB first."""
        return self.engines

    def ratios(self) -> dict[str, dict[str, float]]:
        """Return the times of Spark divided by DuckDB's."""
        duckdb, *others = self.engines
        return {
            f"{each.engine} / {duckdb.engine}": {
                "all groups, s": each.all_groups / duckdb.all_groups,
                "one group, s": each.one_group / duckdb.one_group,
            }
            for each in others
        }


def bench_views(records: int = RECORDS, say: Callable[[str], None] = print) -> ViewsReport:
    """Make a log and have each engine answer. Raises Failure if their answers differ."""
    with tempfile.TemporaryDirectory(prefix="bench-views-") as root:
        say(f"making a log of {records:,} records")
        ensure_tables(root)
        size = make_log(root, records, max(1, records // _KEYS_IN))
        found = []
        for engine in _ENGINES:
            command = [sys.executable, "-m", "tests.bench.views", engine, root]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            found.append(msgspec.json.decode(done.stdout.splitlines()[-1], type=Answers))
            say(f"{engine}: {found[-1].all_groups:.1f} s and {found[-1].one_group:.1f} s")
    for each in found[1:]:
        if each.answers != found[0].answers:
            raise Failure(f"the engines differ: {found[0].answers} and {each.answers}")
    return ViewsReport(records, size, found)


def _answers(engine: str, ask: Callable[[str], list[int]]) -> Answers:
    # The first query of an engine costs more than those after it.
    ask("SELECT 1 AS one")
    began = time.monotonic()
    answers = [ask(_ALL)]
    all_ended = time.monotonic()
    answers.append(ask(_ONE))
    ended = time.monotonic()
    memory = peaks_of(os.getpid())
    return Answers(engine, all_ended - began, ended - all_ended, memory.driver, memory.jvm, answers)


def _duckdb(root: str) -> Answers:
    with closing(Catalog(root)) as catalog:
        return _answers("DuckDB", lambda query: list(catalog.query(query).rows[0]))


def _spark(root: str) -> Answers:
    return _by_spark("Spark", SessionStart(load_settings(), root, delta=True).finish(), root)


def _cluster(root: str) -> Answers:
    jars = packages(delta=True)
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder:
        cluster = Standalone(Path(folder))
        try:
            cluster.begin()
            builder = SparkSession.builder.master(cluster.url)
            for name, value in {**DELTA, **_ALONE, "spark.jars.packages": jars}.items():
                builder = builder.config(name, value)
            return _by_spark("Spark, two executors", builder.getOrCreate(), root)
        finally:
            cluster.stop()


def _by_spark(engine: str, spark: SparkSession, root: str) -> Answers:
    try:
        register_views(spark, root, names=_VIEWS)

        def ask(query: str) -> list[Any]:
            (row,) = spark.sql(query).collect()
            return list(row)

        return _answers(engine, ask)
    finally:
        spark.stop()


_ENGINES = {"duckdb": _duckdb, "spark": _spark, "cluster": _cluster}


def main(arguments: list[str]) -> int:
    """Answer by one engine in this process, and print its figures as JSON."""
    engine, root = arguments
    answers = _ENGINES[engine](root)
    sys.stdout.write(msgspec.json.encode(answers).decode() + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
