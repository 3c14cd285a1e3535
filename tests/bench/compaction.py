"""Time of a compaction, compared with Spark reading and writing the same rows.

DuckDB makes the log: ten closed segments of offset commits with only the newest of each key in
force, and an active segment with one record. Compaction and floor run in separate processes, so
that each has its own peak of memory. Compaction moves superseded records to the history, so it
writes every row, as the floor does.

    python -m tests.bench.compaction compact | spark ROOT
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import duckdb
import msgspec
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.session.start import SessionStart
from group_coordinator.pipeline.settings import UpkeepSettings, load_settings
from group_coordinator.pipeline.tables.store import ensure_table, open_table, table_uri
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.schemas.tables import OFFSETS_HISTORY, OFFSETS_TOPIC
from tests.bench.report import Aim, Column, Report

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = 10_000_000
KEYS = 1_000_000
SEGMENTS = 10
FILES = 4
THREADS = 2
PARTITIONS = 50
_MODULE = "tests.bench.compaction"

_ROWS = """
SELECT
    (key // 100 % {partitions})::INTEGER AS "partition",
    'offset_commit' AS record_type,
    'group-' || (key // 100) AS group_id,
    make_timestamptz({now_us} - ({records} - i) * 1000) AS "timestamp",
    i AS log_offset,
    'topic-' || (key // 10 % 10) AS topic,
    (key % 10)::INTEGER AS topic_partition,
    {{'offset': i, 'leader_epoch': -1::INTEGER, 'metadata': '',
      'commit_timestamp': {now_us} // 1000, 'expire_timestamp': -1::BIGINT}} AS offset_commit,
    NULL::STRUCT(protocol_type VARCHAR, generation INTEGER, protocol VARCHAR, leader VARCHAR,
        current_state_timestamp BIGINT, members STRUCT(member_id VARCHAR,
        group_instance_id VARCHAR, client_id VARCHAR, client_host VARCHAR,
        rebalance_timeout INTEGER, session_timeout INTEGER, subscription BLOB,
        assignment BLOB)[]) AS group_metadata,
    'committed' AS reason,
    uuid()::VARCHAR AS request_id, NULL::BLOB AS "key", NULL::BLOB AS "value"
FROM (SELECT i, (hash(i) % {keys})::BIGINT AS key FROM range({first}, {last}) numbers(i))
"""


class Measured(Struct, frozen=True):
    """The figures of a process: its seconds, without its start, and its peak of resident memory.

    For Spark the peak is that of its Python process only, without the JVM.
    """

    process: Annotated[str, Column("process")]
    seconds: Annotated[float, Column("s", ".1f")]
    peak_bytes: Annotated[int, Column("peak MB (Python)", ".0f", unit=1e6)]
    records_after: Annotated[int, Column("records after", ",.0f")]


class CompactionFigures(Report):
    """The figures of one run; `ratio` is compaction's seconds over the floor's."""

    records: int
    keys: int
    bytes: int
    compaction: Measured
    floor: Measured
    ratio: float

    def rows(self) -> list[Measured]:
        """Both processes."""
        return [self.floor, self.compaction]

    def ratios(self) -> dict[str, dict[str, float]]:
        """Compaction over its floor."""
        return {"ratio": {"s": self.ratio}}

    def aims(self) -> list[Aim]:
        """Compaction takes little longer than Spark takes to copy the rows."""
        return [Aim("seconds over the floor's", "", 1.5, self.ratio)]


def bench_compaction(
    records: int = RECORDS, keys: int = KEYS, say: Callable[[str], None] = print
) -> CompactionFigures:
    """Make a log, compact it, and let Spark read and write it; takes 300 bytes of disk a record."""
    with tempfile.TemporaryDirectory(prefix="bench-compaction-") as root:
        say(f"making a log of {records:,} records, {keys:,} keys")
        size = make_log(root, records, keys)
        say(f"Spark reads and writes {size:,} bytes")
        floor = _measure("spark", root)
        say(f"floor: {floor.seconds:.1f} s; compaction")
        compaction = _measure("compact", root)
        say(f"compaction: {compaction.seconds:.1f} s")
    ratio = compaction.seconds / floor.seconds
    return CompactionFigures(records, keys, size, compaction, floor, ratio)


def make_log(root: str, records: int, keys: int) -> int:
    """Write the offsets topic; return its bytes."""
    handle = ensure_table(root, OFFSETS_TOPIC)
    engine = duckdb.connect()
    per_file = -(-records // (SEGMENTS * FILES))
    cuts = list(range(0, records, per_file))
    ends = [(first, min(first + per_file, records)) for first in cuts] + [(records, records + 1)]
    added: list[AddAction] = []
    for number, (first, last) in enumerate(ends):
        segment = SEGMENTS if first == records else number // FILES
        path = f"segment={segment}/part-{number}.parquet"
        target = Path(table_uri(root, OFFSETS_TOPIC)) / path
        target.parent.mkdir(exist_ok=True)
        query = _ROWS.format(
            partitions=PARTITIONS,
            now_us=time.time_ns() // 1000,
            records=records,
            keys=keys,
            first=first,
            last=last,
        )
        engine.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet)")
        values: dict[str, str | None] = {"segment": str(segment)}
        stats = f'{{"numRecords":{last - first}}}'
        added.append(AddAction(path, target.stat().st_size, values, clock_ms(), True, stats))
    handle.create_write_transaction([*added], "append", handle.schema(), ["segment"])
    return sum(action.size for action in added)


def _measure(what: str, root: str) -> Measured:
    done = subprocess.run(
        [sys.executable, "-m", _MODULE, what, root], stdout=subprocess.PIPE, check=True
    )
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Measured)


def _compact(root: str) -> Measured:
    settings = UpkeepSettings(log_cleaner_threads=THREADS)
    before = open_table(root, OFFSETS_TOPIC).count()
    result = compact(root, settings, clock_ms(), _to_stderr)
    _to_stderr(result.line())
    topic, history = (open_table(root, table).count() for table in (OFFSETS_TOPIC, OFFSETS_HISTORY))
    if topic + history != before:
        raise RuntimeError(f"{before} records became {topic} and {history} of history")
    return Measured("compaction", result.seconds, _peak_bytes(), result.records_after)


def _spark(root: str) -> Measured:
    spark = SessionStart(load_settings(), root, f"local[{THREADS}]", delta=True).finish()
    target = f"{root}/floor"
    try:
        # The first query of a session costs more than the ones after it, and is not to be measured.
        spark.range(1).write.format("delta").save(f"{root}/warm")
        started = time.monotonic()
        rows = spark.read.format("delta").load(table_uri(root, OFFSETS_TOPIC))
        rows.drop("segment").write.format("delta").save(target)
        seconds = time.monotonic() - started
    finally:
        spark.stop()
    return Measured("Spark, read and write", seconds, _peak_bytes(), DeltaTable(target).count())


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _to_stderr(text: str) -> None:
    sys.stderr.write(text + os.linesep)


def main(arguments: list[str]) -> int:
    """Run compaction or the floor in this process, and print its figures as JSON."""
    what, root = arguments
    measured = {"compact": _compact, "spark": _spark}[what](root)
    sys.stdout.write(msgspec.json.encode(measured).decode() + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
