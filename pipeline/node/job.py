"""The coordinator's job (source, stateful step, sink), as `run` and spark-submit start it.

`group-coordinator run --root ROOT --config FILE` starts it on this machine,
`spark-submit ... DIR/job.py --root ROOT --config FILE` on a cluster (`pipeline.node.packaging`).
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import re
import shutil
import signal
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from py4j.protocol import Py4JError

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta import local_folder
from group_coordinator.pipeline.errors import Failure, UsageError
from group_coordinator.pipeline.logs import LogFormat, ProcessLog, default_log_path
from group_coordinator.pipeline.node import needed
from group_coordinator.pipeline.node.preflight import check_start
from group_coordinator.pipeline.node.process import jvm_of
from group_coordinator.pipeline.node.stop_signals import JVM_WAITS_S, StartAborted, StopSignals
from group_coordinator.pipeline.session.driver_jvm import by_value, end_quietly
from group_coordinator.pipeline.session.guard import unless_missing
from group_coordinator.pipeline.session.java import JavaMissing
from group_coordinator.pipeline.session.jvm_log import JvmLog
from group_coordinator.pipeline.session.start import SessionStart, SparkNotStarted
from group_coordinator.pipeline.settings import load_settings
from group_coordinator.pipeline.stream import WORKER_IMPORTS
from group_coordinator.schemas.tables import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from group_coordinator.pipeline.ownership.fencing import ObservedLease
    from group_coordinator.pipeline.settings import Settings
    from group_coordinator.pipeline.stream.stateful import MachineFactory

log = logging.getLogger(__name__)
# With less free space than this, bytes, a disk may refuse one file and accept a smaller one.
_FULL_BYTES = 64 * 1024
# A line of a Java stack trace; Py4J puts the whole trace into its message.
_FRAME = re.compile(r"\s+(at \S+\(.*\)|\.\.\. \d+ more)")
# Spark repeats the error of a failed task after this line.
_AGAIN = "Driver stacktrace:"


class PackagesMissing(Failure):
    """An executor's Python lacks packages; the message names them and says how to ship them."""


class NoTask(Failure):
    """No task runs on an executor; the message says why."""


class Logs(Struct, frozen=True):
    """The log settings of a coordinator; `file` defaults to `pipeline.logs.default_log_path`."""

    form: LogFormat = LogFormat.TEXT
    verbose: bool = False
    file: Path | None = None


def run(
    root: str,
    settings: Settings,
    master: str | None = None,
    make_machine: MachineFactory | None = None,
    logs: Logs | None = None,
    makes_archive: bool = False,
    takes_over: bool = False,
) -> int:
    """Run a coordinator in the foreground; return the exit status.

    Prints `ready` when requests are being answered. SIGTERM and SIGINT stop it between batches,
    with status 0. A failure is one line on standard error, and status 1. `make_machine` replaces
    BatchMachine, as in a benchmark. With `makes_archive`, a missing archive of Spark's classes is
    made half a minute after `ready`. If another process runs the same node, this one fails; with
    `takes_over`, the other one is fenced and ends.
    """
    began = monotonic()
    logs = logs or Logs()
    process_log = ProcessLog(logs.form, logs.verbose)
    jvm_log = JvmLog()
    hand_over_s = settings.coordinator.controlled_shutdown_timeout_ms // 1000
    stop = StopSignals(jvm_log, JVM_WAITS_S + hand_over_s)
    stop.install()
    with unless_missing("the end of the JVM prints a traceback"):
        end_quietly()
    node_id = settings.coordinator.node_id
    try:
        process_log.write_to_file(logs.file or default_log_path(root, f"node-{node_id}"))
        file = process_log.file
        where = "" if file is None else f"; log file, with Spark's log: {file.path}"
        log.info("node %d starts on %s%s", node_id, root, where)
        seen = None if takes_over else _see_lease(root, settings, stop)
        with _session(root, settings, master, jvm_log, stop) as spark:
            from group_coordinator.pipeline.node.coordinating import coordinate

            check_executors(spark)
            seen = None if _is_second_attempt(spark) else seen
            coordinate(
                spark, root, settings, make_machine, stop.request, began, makes_archive, seen
            )
    except (StartAborted, KeyboardInterrupt):
        _end_jvm()
        log.info("stopped before Spark had started")
    except (PackagesMissing, JavaMissing, SparkNotStarted) as error:
        # The tables may not exist yet, so `one_line` must not report them as missing.
        process_log.fail(" ".join(str(error).split()))
        return 1
    except _what_ends_it() as error:
        return _failed(error, root, stop, process_log)
    finally:
        stop.release_jvm()
    return 0


def _see_lease(root: str, settings: Settings, stop: StopSignals) -> ObservedLease:
    """Return the node's lease before the JVM starts; a process that renews it later is alive."""
    with stop.deferred():
        from group_coordinator.pipeline.ownership.fencing import read_lease
    timeout_ms = settings.group.offsets_commit_timeout_ms
    return read_lease(root, settings.coordinator.node_id, timeout_ms)


def _is_second_attempt(spark: SparkSession) -> bool:
    """Whether the cluster runs this application again after a failed attempt.

    YARN does so once if the driver runs on a node. The second attempt takes over at once, because
    no third would follow if it failed at the first one's lease.
    """
    attempt = spark.sparkContext.getConf().get("spark.app.attempt.id")
    return attempt is not None and attempt != "1"


@contextmanager
def _session(
    root: str, settings: Settings, master: str | None, jvm_log: JvmLog, stop: StopSignals
) -> Iterator[SparkSession]:
    begun = SessionStart(settings, root, master, jvm_log, imports=WORKER_IMPORTS)
    with stop.deferred():
        # The coordinator's modules are imported while the JVM starts.
        import_module("group_coordinator.pipeline.node.coordinating")
    spark = begun.finish()
    jvm_log.started()
    stop.watch_jvm(spark)
    log.info("Spark %s runs on %s", spark.version, spark.sparkContext.master)
    try:
        yield spark
    finally:
        jvm_log.ending()
        spark.stop()


def _failed(error: Exception, root: str, stop: StopSignals, process_log: ProcessLog) -> int:
    if stop.request.requested.is_set():
        # A supervisor often signals the child processes too, so the JVM may end first.
        log.warning(
            "the JVM ended before the query was stopped; the next start runs the last batch again"
        )
        return 0
    process_log.fail(*_told(error, root, stop))
    return 1


def _told(error: Exception, root: str, stop: StopSignals) -> tuple[str, str]:
    if stop.jvm_has_ended():
        # Errors that follow from the JVM's end, such as a refused connection, explain less.
        return "Spark's JVM has ended: it was killed, or ran out of memory", str(error)
    # The tables may not exist before the first task, so `one_line` must not report them as missing.
    told = str(error) if isinstance(error, NoTask) else one_line(error, root)
    return told, str(error.__cause__ or error)


def _end_jvm() -> None:
    """End the JVM that is being started. spark-submit's JVM is no child and ends by itself."""
    jvm = jvm_of(os.getpid())
    if jvm is not None:
        with suppress(ProcessLookupError):
            os.kill(jvm, signal.SIGTERM)


def _what_ends_it() -> tuple[type[Exception], ...]:
    from group_coordinator.pipeline.node.coordinating import ERRORS

    return ERRORS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from spark-submit, after `needed` has found no missing module."""
    parser = argparse.ArgumentParser(prog="job.py", description="Run a group coordinator.")
    parser.add_argument("--root", required=True, help="folder or URI of the tables")
    parser.add_argument(
        "--config", help="TOML file with settings that override conf/coordinator.toml"
    )
    parser.add_argument(
        "--node-id", type=int, help="number of this coordinator among those of the root"
    )
    parser.add_argument(
        "--take-over", action="store_true", help="end another process that runs this node"
    )
    parser.add_argument("--log-format", type=LogFormat, choices=list(LogFormat), default="text")
    parser.add_argument(
        "--log-file", type=Path, help="file for the whole log, in addition to the terminal"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="write the whole log to the terminal too"
    )
    options = parser.parse_args(arguments)
    try:
        settings = load_settings(options.config).with_node_id(options.node_id)
        check_start(options.root)
    except (UsageError, OSError) as error:
        print(f"group-coordinator: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    logs = Logs(options.log_format, options.verbose, options.log_file)
    return run(options.root, settings, logs=logs, takes_over=options.take_over)


def check_executors(spark: SparkSession) -> None:
    """Check that an executor of a cluster has the job's packages. Raises PackagesMissing, NoTask.

    Without this check, the first batch would fail with an executor's traceback, printed four times.
    """
    master = spark.conf.get("spark.master")
    if master is None or master.startswith("local"):
        return
    missing = None
    # Sent by value, because an executor without this package cannot import the function.
    with unless_missing("missing packages of executors are not detected"), by_value(needed):
        task = spark.sparkContext.parallelize([needed.NEEDED], 1).map(needed.missing_modules)
        try:
            (missing,) = task.collect()
        except Py4JError as error:
            raise NoTask(f"no task runs on an executor: {in_one_line(error)}") from error
    if missing is not None:
        raise PackagesMissing(needed.advice("executor", missing))


def one_line(error: BaseException, root: str) -> str:
    """Return the failure's text on one line, after a fault of the local root, if there is one."""
    text = in_one_line(error)
    folder = local_folder(root)
    trouble = None if folder is None else _trouble(folder, text)
    return text if trouble is None else f"{trouble}: {text}"


def in_one_line(error: BaseException) -> str:
    """Return the failure's text on one line, without Java's stack traces and Spark's repetition."""
    text = str(error).partition(_AGAIN)[0]
    lines = [line for line in text.splitlines() if not _FRAME.fullmatch(line)]
    return " ".join(" ".join(lines).split())


def _trouble(root: Path, text: str) -> str | None:
    if os.strerror(errno.ENOSPC) in text:
        return f"the disk of {root} is full"
    # The root itself may exist again: the writer of a checkpoint recreates its parent folders.
    if not (root / REQUESTS.name / "_delta_log").is_dir():
        return f"the tables in {root} are missing"
    if shutil.disk_usage(root).free < _FULL_BYTES:
        return f"the disk of {root} is full"
    return None
