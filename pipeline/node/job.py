"""The coordinator's job: source -> stateful -> sink; what `run` and spark-submit start.

`python -m pipeline run --root ROOT --config FILE` starts it on this machine, `spark-submit
--packages ... --py-files WHEEL pipeline/node/job.py --root ROOT --config FILE` on a cluster.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError

from coordinator.config import ConfigError
from coordinator.group.batch import BatchMachine
from pipeline.clock import clock_ms
from pipeline.errors import Failure
from pipeline.node.diagnosis import one_line
from pipeline.node.node import CoordinatorNode, start
from pipeline.settings import load_settings
from pipeline.stream.session import create_session, with_location
from pipeline.stream.spark_engine import SparkEngine
from pipeline.tables.request_keys import read_keys
from pipeline.upkeep.schedule import Upkeep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.signatures import RequestKey
    from pipeline.settings import Settings
    from pipeline.stream.stateful import MachineFactory

log = logging.getLogger(__name__)

# What ends a start with one line rather than a traceback.
START_ERRORS = (Failure, ConfigError, DeltaError, OSError)


def run(
    root: str,
    settings: Settings,
    master: str | None = None,
    make_machine: MachineFactory | None = None,
) -> int:
    """Run a coordinator in the foreground; return the exit status.

    Prints `ready` once requests are being answered. SIGTERM and SIGINT stop it between batches,
    with status 0; a failure is named in one line on standard error, with status 1. `make_machine`
    makes what decides instead of BatchMachine, as a benchmark does.
    """
    stop = threading.Event()
    _stop_on_signals(stop)
    _log_to_stderr()
    try:
        spark = create_session(settings, root, master)
        # Spark's own handler for Ctrl-C, just installed, would cancel the batch under way.
        _stop_on_signals(stop)
        try:
            keys = _keys(settings)
            make_machine = make_machine or partial(BatchMachine, None, keys or ())
            engine = SparkEngine(spark, root, settings.coordinator, make_machine, keys)
            coordinator = start(engine, root, with_location(settings, root, spark))
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


def _keys(settings: Settings) -> tuple[RequestKey, ...] | None:
    """The keys by which principals are believed; None if all are. Raises KeysError."""
    path = settings.coordinator.requests_keys_file
    return tuple(read_keys(path)) if path else None


def _log_to_stderr() -> None:
    """Say what an operator wants to know: partitions that come and go, compaction, retention."""
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=form)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # Spark logs each Python error a second time as JSON.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)


def _stop_on_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def _watch(coordinator: CoordinatorNode, stop: threading.Event, upkeep: Upkeep) -> None:
    announced = False
    try:
        while not stop.wait(0.1 if announced else 0.02):
            coordinator.tick()
            if not announced and coordinator.is_ready():
                print("ready", flush=True)
                announced = True
            if coordinator.does_upkeep():
                upkeep.run_due(clock_ms())
        coordinator.stop()
    finally:
        coordinator.abandon()
        upkeep.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """What `spark-submit pipeline/node/job.py` runs."""
    parser = argparse.ArgumentParser(prog="job.py", description="Run a group coordinator.")
    parser.add_argument("--root", required=True, help="folder or URI under which the tables lie")
    parser.add_argument("--config", help="TOML file over conf/coordinator.toml")
    parser.add_argument("--node-id", type=int, help="which coordinator of the root this is")
    options = parser.parse_args(arguments)
    try:
        settings = load_settings(options.config).with_node_id(options.node_id)
    except Failure as error:
        print(f"group-coordinator: {error}", file=sys.stderr)
        return 1
    return run(options.root, settings)


if __name__ == "__main__":
    sys.exit(main())
