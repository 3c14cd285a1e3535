"""The coordinator's job: source -> stateful -> sink; what `run` and spark-submit start.

`group-coordinator run --root ROOT --config FILE` starts it on this machine, `spark-submit ...
DIR/job.py --root ROOT --config FILE` on a cluster (`pipeline.node.packaging`).
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.errors import WrongCall
from group_coordinator.pipeline.logs import LogFormat, ProcessLog, default_file
from group_coordinator.pipeline.node.executors import NoTask, PackagesMissing, check_executors
from group_coordinator.pipeline.node.preflight import check_start
from group_coordinator.pipeline.node.process_tree import jvm_of
from group_coordinator.pipeline.node.stop_request import StopRequest
from group_coordinator.pipeline.session.driver_jvm import before_jvm_ends, end_quietly
from group_coordinator.pipeline.session.guard import unless_missing
from group_coordinator.pipeline.session.java import JavaMissing
from group_coordinator.pipeline.session.jvm_log import JvmLog
from group_coordinator.pipeline.session.start import SessionStart, SparkNotStarted
from group_coordinator.pipeline.settings import load_settings
from group_coordinator.pipeline.stream import WORKER_IMPORTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from group_coordinator.pipeline.ownership.same_node import SeenLease
    from group_coordinator.pipeline.settings import Settings
    from group_coordinator.pipeline.stream.stateful import MachineFactory

log = logging.getLogger(__name__)

# How long a JVM that is told to end waits for the coordinator's own end, once its partitions are
# handed over: the batch under way, 10 s at most, and what it says to others.
_JVM_WAITS_S = 60


class Logs(Struct, frozen=True):
    """How a coordinator logs: `file` None is the default one (`pipeline.logs.default_file`)."""

    form: LogFormat = LogFormat.TEXT
    verbose: bool = False
    file: Path | None = None


class _AskedToEnd(BaseException):
    """The process was asked to end before Spark ran."""


class _Stop:
    """What a process does when it is asked to end: SIGTERM, Ctrl-C, or the end of its JVM.

    Before Spark runs, the process gives up its start (`_AskedToEnd`). Once Spark runs, it hands its
    partitions over, unless a second signal asks it to end at once, and ends between two batches.
    """

    def __init__(self, jvm_log: JvmLog, jvm_waits_s: int = _JVM_WAITS_S) -> None:
        self.request = StopRequest()
        self._jvm_log = jvm_log
        self._jvm_waits_s = jvm_waits_s
        self._starts = True
        self._is_held = False
        self._done = threading.Event()
        self._jvm_pid: int | None = None

    def on_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have a signal end the start after the block, as an import that is cut off is broken."""
        self._is_held = True
        yield
        self._is_held = False
        if self.request.asked.is_set():
            self._give_up()

    def with_jvm(self, spark: SparkSession) -> None:
        """Spark runs: from now on a signal, to this process or the JVM, stops the node in order."""
        self._starts = False
        self._jvm_pid = jvm_of(os.getpid())
        # Spark's own handler for Ctrl-C, just installed, would cancel the batch under way.
        self.on_signals()
        with unless_missing("a JVM that is told to end cuts a batch off, which is run again"):
            before_jvm_ends(spark, self._jvm_ends, self._jvm_waits_s)

    def jvm_has_ended(self) -> bool:
        """Whether the JVM on which Spark ran is gone."""
        return self._jvm_pid is not None and jvm_of(os.getpid()) != self._jvm_pid

    def done(self) -> None:
        """This process needs the JVM no more."""
        self._done.set()

    def _signalled(self, _number: int, _frame: object) -> None:
        if self._is_held:
            self.request.ask()
        elif self._starts:
            self._give_up()
        else:
            self._jvm_log.ending()
            self.request.ask_again()

    def _give_up(self) -> None:
        self._starts = False
        raise _AskedToEnd

    def _jvm_ends(self) -> None:
        self._jvm_log.ending()
        self.request.ask()
        self._done.wait(self._jvm_waits_s)


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

    Prints `ready` once requests are being answered. SIGTERM and SIGINT stop it between batches,
    with status 0; a failure is named in one line on standard error, with status 1. `make_machine`
    makes what decides instead of BatchMachine, as a benchmark does. `makes_archive` has the
    archive of Spark's classes made, half a minute after that, if there is none. Another process
    that runs the node is a failure, unless `takes_over`: then it is ended.
    """
    began = monotonic()
    logs = logs or Logs()
    process_log = ProcessLog(logs.form, logs.verbose)
    jvm_log = JvmLog()
    hand_over_s = settings.coordinator.controlled_shutdown_timeout_ms // 1000
    stop = _Stop(jvm_log, _JVM_WAITS_S + hand_over_s)
    stop.on_signals()
    with unless_missing("the end of the JVM prints a traceback"):
        end_quietly()
    node_id = settings.coordinator.node_id
    try:
        process_log.keep(logs.file or default_file(root, f"node-{node_id}"))
        log.info("node %d starts on %s%s", node_id, root, _where(process_log))
        seen = None if takes_over else _see_lease(root, settings, stop)
        with _session(root, settings, master, jvm_log, stop) as spark:
            from group_coordinator.pipeline.node.coordinating import coordinate

            check_executors(spark)
            seen = None if _is_second_attempt(spark) else seen
            coordinate(
                spark, root, settings, make_machine, stop.request, began, makes_archive, seen
            )
    except (_AskedToEnd, KeyboardInterrupt):
        _end_jvm()
        log.info("stopped before it had begun")
    except (PackagesMissing, JavaMissing, SparkNotStarted) as error:
        # Before there are tables, whose state would say more.
        process_log.fail(" ".join(str(error).split()))
        return 1
    except _what_ends_it() as error:
        return _failed(error, root, stop, process_log)
    finally:
        stop.done()
    return 0


def _see_lease(root: str, settings: Settings, stop: _Stop) -> SeenLease:
    """The node's lease before there is a JVM: whoever renews it meanwhile is alive."""
    with stop.held():
        from group_coordinator.pipeline.ownership.same_node import see_lease
    timeout_ms = settings.group.offsets_commit_timeout_ms
    return see_lease(root, settings.coordinator.node_id, timeout_ms)


def _is_second_attempt(spark: SparkSession) -> bool:
    """Whether a cluster starts this application again: it has given the one before up.

    YARN does so with a driver on a node, once for an application by default, so the second attempt
    cannot wait for the first one's end.
    """
    attempt = spark.sparkContext.getConf().get("spark.app.attempt.id")
    return attempt is not None and attempt != "1"


@contextmanager
def _session(
    root: str, settings: Settings, master: str | None, jvm_log: JvmLog, stop: _Stop
) -> Iterator[SparkSession]:
    """Spark's session, from the start of its JVM to its end."""
    begun = SessionStart(settings, root, master, jvm_log, imports=WORKER_IMPORTS)
    with stop.held():
        # What the coordinator needs is imported while the JVM starts.
        import_module("group_coordinator.pipeline.node.coordinating")
    spark = begun.finish()
    jvm_log.started()
    stop.with_jvm(spark)
    log.info("Spark %s runs on %s", spark.version, spark.sparkContext.master)
    try:
        yield spark
    finally:
        jvm_log.ending()
        spark.stop()


def _failed(error: Exception, root: str, stop: _Stop, process_log: ProcessLog) -> int:
    """Tell a person why the coordinator ended; return the exit status."""
    if stop.request.asked.is_set():
        # Who stops a process often stops its children with it: the JVM was first to go.
        log.warning("the JVM ended before the query was stopped; its batch will be run again")
        return 0
    process_log.fail(*_told(error, root, stop))
    return 1


def _told(error: Exception, root: str, stop: _Stop) -> tuple[str, str]:
    """The line that tells a person of a failure, and what the log has besides."""
    if stop.jvm_has_ended():
        # What came of it, such as a refused connection, says less.
        return "Spark's JVM has ended: it was killed, or had no memory", str(error)
    from group_coordinator.pipeline.node.diagnosis import one_line

    # Before the first task there are no tables, whose state would say more.
    told = str(error) if isinstance(error, NoTask) else one_line(error, root)
    return told, str(error.__cause__ or error)


def _where(process_log: ProcessLog) -> str:
    if process_log.file is None:
        return ""
    return f"; its log, with all that Spark says: {process_log.file.path}"


def _end_jvm() -> None:
    """End the JVM that was being started; that of spark-submit is no child, and ends by itself."""
    jvm = jvm_of(os.getpid())
    if jvm is not None:
        with suppress(ProcessLookupError):
            os.kill(jvm, signal.SIGTERM)


def _what_ends_it() -> tuple[type[Exception], ...]:
    """The errors that end a coordinator with one line rather than a traceback."""
    from group_coordinator.pipeline.node.coordinating import ERRORS

    return ERRORS


def main(arguments: Sequence[str] | None = None) -> int:
    """What spark-submit runs, once `needed` has found nothing missing."""
    parser = argparse.ArgumentParser(prog="job.py", description="Run a group coordinator.")
    parser.add_argument("--root", required=True, help="folder or URI under which the tables lie")
    parser.add_argument("--config", help="TOML file over conf/coordinator.toml")
    parser.add_argument("--node-id", type=int, help="which coordinator of the root this is")
    parser.add_argument(
        "--take-over", action="store_true", help="end another process that runs this node"
    )
    parser.add_argument("--log-format", type=LogFormat, choices=list(LogFormat), default="text")
    parser.add_argument("--log-file", type=Path, help="where all is logged, beside the terminal")
    parser.add_argument("--verbose", action="store_true", help="log all of it to the terminal too")
    options = parser.parse_args(arguments)
    try:
        settings = load_settings(options.config).with_node_id(options.node_id)
        check_start(options.root)
    except (WrongCall, OSError) as error:
        print(f"group-coordinator: {error}", file=sys.stderr)
        return 2 if isinstance(error, WrongCall) else 1
    logs = Logs(options.log_format, options.verbose, options.log_file)
    return run(options.root, settings, logs=logs, takes_over=options.take_over)
