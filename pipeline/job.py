"""The coordinator's job: source -> stateful -> sink; what `run` and spark-submit start.

`python -m pipeline run --root ROOT --config FILE` starts it on this machine, `spark-submit
--packages ... --py-files WHEEL pipeline/job.py --root ROOT --config FILE` on a cluster.
"""

from __future__ import annotations

import argparse
import functools
import logging
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError

from coordinator.config import ConfigError, parse_config
from coordinator.group.batch import BatchMachine, BatchSettings
from coordinator.group.coordinator import Node
from pipeline.clock import clock_ms
from pipeline.commit import EPOCH_APP_ID, local_folder, open_appender, raise_epoch
from pipeline.diagnosis import one_line
from pipeline.errors import Failure
from pipeline.log_trim import consumed_version, trim_log
from pipeline.recovery import existing_seed, prepare_seed
from pipeline.session import create_session
from pipeline.settings import load_settings
from pipeline.sink import WRITTEN, Sink
from pipeline.source import read_requests, read_seed
from pipeline.stateful import answer
from pipeline.store import RequestLog, ensure_tables, open_table, table_uri
from pipeline.upkeep import Upkeep
from schemas.messages import FindCoordinatorRequest, RequestEvent
from schemas.tables import COORDINATORS, REQUESTS, CoordinatorStart, to_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pipeline.settings import Settings
    from pipeline.stateful import MachineFactory

log = logging.getLogger(__name__)

CHECKPOINT = "_checkpoints/group-coordinator"
QUERY_NAME = "group-coordinator"
# The group that a starting coordinator asks about: see `_ask_itself`.
START_GROUP = "__coordinator_start"
REMEMBERED_STARTS = 100
_TRIM_INTERVAL_S = 5.0
_BATCH_WAIT_S = 10.0

# What ends a start with one line rather than a traceback.
START_ERRORS = (Failure, ConfigError, DeltaError, OSError)


class QueryFailed(Failure):
    """The streaming query ended by itself; the message is the innermost reason."""


class Coordinator:
    """A running coordinator: its query and its sink."""

    def __init__(self, query: StreamingQuery, sink: Sink, root: str) -> None:
        self.query = query
        self.sink = sink
        self._requests = local_folder(table_uri(root, REQUESTS))

    def await_ready(self, timeout_s: float = 120.0) -> None:
        """Return once a batch was answered; raises QueryFailed, also if none was in time."""
        limit = time.monotonic() + timeout_s
        while self.sink.batches == 0:
            self.check()
            if time.monotonic() > limit:
                raise QueryFailed(f"no batch within {timeout_s:g} s")
            time.sleep(0.02)

    def check(self) -> None:
        """Raise QueryFailed if the query has ended by itself, FencedError if others ended it."""
        if self.query.isActive:
            return
        # Two coordinators on one checkpoint also trip over Spark's own log; this says why.
        try:
            self.sink.check_epoch()
        except (DeltaError, OSError) as unread:
            # Where the tables cannot be read, that is why the query ended.
            log.debug("the epoch cannot be checked: %s", unread)
        error = self.query.exception()
        raise QueryFailed("the query was stopped" if error is None else innermost(str(error)))

    def trim(self) -> int:
        """Delete what the query has consumed of the log of `requests`; returns how many files."""
        if self._requests is None:
            return 0
        folder = self._requests.resolve()
        version = consumed_version(self.query.lastProgress, f"{folder}]")
        try:
            return 0 if version is None else trim_log(folder, version)
        except OSError as error:
            # A longer log is slower, not wrong; if the root is gone, the query will say so.
            log.warning("the log of requests was not trimmed: %s", error)
            return 0

    def stop(self) -> None:
        """Stop the query, between two batches if one ends soon.

        A batch that is cut off is run again, and written once, by the next start.
        """
        limit = time.monotonic() + _BATCH_WAIT_S
        before = self._last_committed()
        while self.query.isActive and time.monotonic() < limit:
            # Batches follow each other without a pause when they take longer than the interval;
            # just after a commit the next one is still looking for requests.
            if not self.query.status["isTriggerActive"] or self._last_committed() > before:
                break
            time.sleep(0.002)
        self.query.stop()

    def _last_committed(self) -> int:
        progress = self.query.lastProgress
        return -1 if progress is None else progress["batchId"]


def start(
    spark: SparkSession, root: str, settings: Settings, make_machine: MachineFactory | None = None
) -> Coordinator:
    """Start a coordinator at `root`, creating the tables that are missing.

    `make_machine` null is the real one. Every earlier coordinator of the root is fenced off: it can
    write nothing more, and stops. Raises SchemaMismatch, ConfigError, and FencedError if a later
    coordinator started meanwhile.
    """
    ensure_tables(root)
    config = parse_config(settings.group)
    ours = settings.coordinator
    node = Node(ours.node_id, ours.advertised_host, ours.advertised_port)
    epoch, starts = record_start(root, node, clock_ms())
    for table in WRITTEN:
        raise_epoch(table_uri(root, table), epoch)
    if make_machine is None:
        batch = BatchSettings(
            config=config, node=node, starts=starts, dedup_window_ms=ours.request_dedup_window_ms
        )
        make_machine = functools.partial(BatchMachine, batch)
    sink = Sink(root, ours, epoch=epoch)
    checkpoint = f"{root.rstrip('/')}/{CHECKPOINT}"
    seed_uri = f"{checkpoint}-seed"
    seed = (existing_seed(seed_uri) if has_begun(spark, checkpoint) else None) or prepare_seed(
        spark, root, seed_uri
    )
    # After the seed, and before the stream begins with the version after it.
    _ask_itself(root, node, starts[-1])
    requests = read_requests(spark, root, ours, seed.first_version)
    events = requests.unionByName(read_seed(spark, seed.uri))
    query = (
        answer(events, make_machine)
        .writeStream.foreachBatch(sink)
        .queryName(QUERY_NAME)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{ours.trigger_interval_ms} milliseconds")
        .start()
    )
    return Coordinator(query, sink, root)


def has_begun(spark: SparkSession, checkpoint: str) -> bool:
    """Whether the checkpoint has planned a batch: then its first one is never to be another."""
    jvm = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets/0")
    parent = path.getParent()
    files = parent.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return bool(files.exists(parent) and len(files.listStatus(parent)))


def record_start(root: str, node: Node, now: int) -> tuple[int, tuple[int, ...]]:
    """Append this start to `coordinators`; return its epoch, and the latest starts, ms.

    The epoch is one more than any before, also if two coordinators start at once. The starts are
    those of all coordinators of the root, oldest first.
    """
    appender = open_appender(table_uri(root, COORDINATORS))
    while True:
        handle = open_table(root, COORDINATORS)
        (last,) = _query(handle, "SELECT max(epoch) AS epoch FROM starts")["epoch"].to_pylist()
        epoch = 0 if last is None else last + 1
        row = CoordinatorStart(node.node_id, node.host, node.port, epoch, now)
        if appender.append(to_arrow(COORDINATORS, [row]), EPOCH_APP_ID, epoch):
            break
        appender.forget()
    handle = open_table(root, COORDINATORS)
    query = f"SELECT started_at FROM starts ORDER BY started_at DESC LIMIT {REMEMBERED_STARTS}"
    latest = _query(handle, query).column("started_at").cast(pa.int64()).to_pylist()
    return epoch, tuple(sorted(micros // 1000 for micros in latest))


def _query(handle: DeltaTable, sql: str) -> pa.Table:
    return pa.table(QueryBuilder().register("starts", handle).execute(sql).read_all())


def _ask_itself(root: str, node: Node, now: int) -> None:
    """Send the coordinator a request: after a start Spark runs no batch until one arrives.

    Without a batch no timer fires either, however long ago a member fell silent. The answer shows
    that requests are being answered; it changes no group.
    """
    request = RequestEvent(
        request_id=f"coordinator-start-{node.node_id}-{now}",
        group_id=START_GROUP,
        api="find_coordinator",
        client_id=f"coordinator-{node.node_id}",
        sent_at=now,
        find_coordinator=FindCoordinatorRequest(0),
    )
    RequestLog(root).append([request])


def run(
    root: str,
    settings: Settings,
    master: str | None = None,
    make_machine: MachineFactory | None = None,
) -> int:
    """Run a coordinator in the foreground; return the exit status.

    Prints `ready` once requests are being answered. SIGTERM and SIGINT stop it between batches,
    with status 0; a failure is named in one line on standard error, with status 1.
    """
    stop = threading.Event()
    _stop_on_signals(stop)
    # Spark logs each Python error a second time as JSON.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        spark = create_session(settings, root, master)
        # Spark's own handler for Ctrl-C, just installed, would cancel the batch under way.
        _stop_on_signals(stop)
        try:
            coordinator = start(spark, root, settings, make_machine)
            _watch(coordinator, stop, Upkeep(root, settings.upkeep, clock_ms))
        finally:
            spark.stop()
    except (*START_ERRORS, Py4JError) as error:
        if stop.is_set():
            # Who stops a process often stops its children with it: the JVM was first to go.
            log.warning("the JVM ended before the query was stopped; its batch will be run again")
            return 0
        print(f"group-coordinator: {one_line(error, root)}", file=sys.stderr)
        return 1
    return 0


def _stop_on_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def _watch(coordinator: Coordinator, stop: threading.Event, upkeep: Upkeep) -> None:
    announced = False
    trim_at = 0.0
    try:
        while not stop.wait(0.5 if announced else 0.02):
            coordinator.check()
            if time.monotonic() >= trim_at:
                trim_at = time.monotonic() + _TRIM_INTERVAL_S
                coordinator.trim()
            if not announced and coordinator.sink.batches:
                print("ready", flush=True)
                announced = True
            upkeep.run_due(clock_ms())
        coordinator.stop()
    finally:
        upkeep.stop()


def innermost(text: str) -> str:
    """Return the line that names the cause in the text of a failed query."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The JVM's causes of a Python error come after it, and theirs after them.
    lines = [line.removeprefix("Caused by: ") for line in lines]
    errors = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    chosen = errors[-1] if errors else lines[0]
    name, _, message = chosen.partition(":")
    return f"{name.rpartition('.')[2]}:{message}" if message else chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """What `spark-submit pipeline/job.py` runs."""
    parser = argparse.ArgumentParser(prog="job.py", description="Run a group coordinator.")
    parser.add_argument("--root", required=True, help="folder or URI under which the tables lie")
    parser.add_argument("--config", help="TOML file over conf/coordinator.toml")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        settings = load_settings(options.config)
    except Failure as error:
        print(f"group-coordinator: {error}", file=sys.stderr)
        return 1
    return run(options.root, settings)


if __name__ == "__main__":
    sys.exit(main())
