"""Everything this project uses of Spark that Spark does not publish.

A release of Spark may change any of it without notice, so no other module reaches for it. Whoever
moves to a new release looks here first:

* the driver's JVM, through py4j: how it is launched, what it writes, what it does as it ends, and
  Hadoop's properties in it;
* the Spark schema of an Arrow one;
* the modules that Spark's Python processes import;
* the worker's end of applyInPandasWithState: which serializer reads and writes a task's stream, and
  how the stream begins. What travels in it is `pipeline.session.arrow_groups`'.

Neither py4j's objects nor pyspark's serializers have types: hence `Any`, and the calls that mypy is
told to ignore.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import pyspark
from pyspark import SparkContext, accumulators
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.serializers import (
    SpecialLengths,
    UTF8Deserializer,
    pickle_protocol,
    read_int,
    write_int,
)
from pyspark.sql.pandas import serializers
from pyspark.sql.pandas.types import from_arrow_schema as _from_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

# The releases of Spark whose stream of groups `pipeline.session.arrow_groups` reads and writes. In
# any other release groups go Spark's own way.
KNOWN_SPARK = ("4.2.", "4.3.")
PICKLE_PROTOCOL = pickle_protocol

# --- the driver's JVM ---------------------------------------------------------------------------


def jvm(spark: SparkSession) -> Any:
    """The driver's JVM: its classes by their full names."""
    gateway = spark.sparkContext._jvm
    assert gateway is not None  # only Spark Connect has none
    return gateway


def runs_jvm() -> bool:
    """Whether this process has a JVM, be it one whose session has been stopped."""
    return SparkContext._gateway is not None


# Where log4j looks for a configuration.
_LOG4J_PROPERTIES = ("log4j2.configurationFile", "log4j.configurationFile")
_LOG4J_FILES = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.json")


class JvmEnded(RuntimeError):
    """The JVM that was launched ended before it could be spoken to."""


class BegunJvm(NamedTuple):
    """A JVM that has been started, and the folder in which it says how it is spoken to."""

    process: subprocess.Popen[bytes]
    folder: str


_CONNECTION = "connection"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_POLL_S = 0.01


def begin_jvm(settings: dict[str, str], stderr: int) -> BegunJvm:
    """Start the driver's JVM with these settings, without waiting until it can be spoken to.

    What it writes to standard error goes to the file descriptor `stderr`. It ends with its input,
    which is when this process ends. pyspark would start it with the first session, wait for it, and
    have it share this process's standard error.
    """
    command = [f"{_find_spark_home()}/bin/spark-submit"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    folder = tempfile.mkdtemp()
    told = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": f"{folder}/{_CONNECTION}"}
    process = subprocess.Popen(
        command + shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")),
        stdin=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, **told},
        preexec_fn=ignore_interrupts,
    )
    return BegunJvm(process, folder)


def ignore_interrupts() -> None:
    """Have a process that is being started pass over Ctrl-C, which reaches all of a terminal's.

    The driver ends those that it has started.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def connect_jvm(begun: BegunJvm) -> None:
    """Have this process's sessions be in a JVM that was begun. Raises JvmEnded."""
    connection = Path(begun.folder) / _CONNECTION
    try:
        while not connection.is_file():
            if begun.process.poll() is not None:
                raise JvmEnded(f"the JVM ended with status {begun.process.returncode}")
            time.sleep(_POLL_S)
        with connection.open("rb") as said:
            port = read_int(said)  # type: ignore[no-untyped-call]
            secret = UTF8Deserializer().loads(said)  # type: ignore[no-untyped-call]
    finally:
        shutil.rmtree(begun.folder, ignore_errors=True)
    os.environ |= {_PORT: str(port), _SECRET: secret}
    try:
        launch_jvm()
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    # The JVM's input is open as long as this is.
    gateway: Any = SparkContext._gateway
    gateway.proc = begun.process


def launch_jvm() -> None:
    """Have this process's sessions be in the JVM that the environment names."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def stderr_to(pipe: str) -> None:
    """Have the JVM write its standard error to a named pipe."""
    java: Any = SparkContext._jvm
    stream = java.java.io.FileOutputStream(pipe)
    java.java.lang.System.setErr(java.java.io.PrintStream(stream, True))


def logs_by_default() -> bool:
    """Whether nobody has chosen how log4j logs in the JVM: then Spark's own profile counts."""
    java: Any = SparkContext._jvm
    chosen = map(java.java.lang.System.getProperty, _LOG4J_PROPERTIES)
    loader = java.Thread.currentThread().getContextClassLoader()
    files = map(loader.getResource, _LOG4J_FILES)
    return not any(found is not None for found in (*chosen, *files))


def log_as(configuration: str) -> None:
    """Have log4j log in the JVM as the file of this URI says; a session begun later undoes it."""
    java: Any = SparkContext._jvm
    configurator = java.org.apache.logging.log4j.core.config.Configurator
    configurator.reconfigure(java.java.net.URI.create(configuration))


class _Task:
    """A java.lang.Runnable."""

    class Java:
        implements = ("java.lang.Runnable",)

    def __init__(self, task: Callable[[], None]) -> None:
        self._task = task

    def run(self) -> None:
        self._task()


# Spark's own shutdown hook has priority 40; hooks of higher ones run before it.
_BEFORE_SPARK = 100


def before_jvm_ends(spark: SparkSession, task: Callable[[], None], timeout_s: int) -> None:
    """Have a JVM that is told to end (SIGTERM, SIGINT) first wait for `task`, up to `timeout_s`.

    Spark works until then. The task is called in a thread of its own, also as this process ends.
    """
    gateway = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    java = jvm(spark)
    # A FutureTask keeps an error to itself: when this process has ended, the call comes nowhere.
    hook = java.java.util.concurrent.FutureTask(_Task(task), None)
    hooks = java.org.apache.hadoop.util.ShutdownHookManager.get()
    seconds = java.java.util.concurrent.TimeUnit.SECONDS
    hooks.addShutdownHook(hook, _BEFORE_SPARK, timeout_s, seconds)


def end_quietly() -> None:
    """Have no traceback printed when the JVM closes the connection of its accumulators.

    It does so as it ends, and the thread that reads them takes that for an error.
    """
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        _replace(server, "handle_error", _handle_accumulator_error)


def _handle_accumulator_error(server: socketserver.BaseServer, request: Any, address: Any) -> None:
    if not isinstance(sys.exc_info()[1], EOFError | OSError):
        socketserver.BaseServer.handle_error(server, request, address)


def hadoop_properties(spark: SparkSession) -> Any:
    """Hadoop's Configuration in the driver, as Java has it."""
    return spark.sparkContext._jsc.hadoopConfiguration()


def has_class(spark: SparkSession, name: str) -> bool:
    """Whether the driver's JVM finds a class."""
    loader = jvm(spark).Thread.currentThread().getContextClassLoader()
    return loader.getResource(f"{name.replace('.', '/')}.class") is not None


# --- schemas ------------------------------------------------------------------------------------


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema that Arrow columns of these types have in Spark."""
    return _from_arrow_schema(schema)


# --- Python processes ---------------------------------------------------------------------------

# What the Python processes of a query import. Not the modules that they run (`pyspark.daemon`, and
# of a stream's source `python_streaming_source_runner`): Python warns of a module that is to be run
# and has been imported.
WORKER_MODULES = (
    "pyspark.worker",
    "pyspark.sql.datasource_internal",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.datasource",
)

# --- a worker's stream of groups ----------------------------------------------------------------

# Reads a task's stream of groups, and writes what goes back to the JVM.
Serve = Callable[[IO[bytes], IO[bytes]], None]

# What reads and writes a task's stream of groups: up to 4.2 a serializer of its own, with pandas
# frames in it; from 4.3 on the one of all streams of Arrow batches.
_SERIALIZER = "ApplyInPandasWithStateSerializer", "ArrowStreamSerializer"
_Serializer: Any = next(getattr(serializers, n) for n in _SERIALIZER if hasattr(serializers, n))
_load_as_spark_does = _Serializer.load_stream
# What serves the next stream; a worker does one task at a time.
_next: list[Serve] = []


def is_known_spark() -> bool:
    """Whether this Spark is of the releases `KNOWN_SPARK`."""
    return pyspark.__version__.startswith(KNOWN_SPARK)


def serve_next(serve: Serve) -> None:
    """Have `serve` read and answer the next stream of groups that this worker gets, and no other.

    A worker asks its task's serializer for the groups, maps the task's function over them and hands
    the serializer the results. For the one stream, the serializer is replaced: it returns no groups
    to map over, and calls `serve` when it is to write the results. The streams of other functions
    in the same worker go Spark's way.
    """
    _next[:] = [serve]
    _replace(_Serializer, "load_stream", _load_stream)


def start_arrow_stream(out: IO[bytes]) -> None:
    """Tell the JVM that an Arrow stream follows; until then it also takes an error."""
    write_int(SpecialLengths.START_ARROW_STREAM, out)  # type: ignore[no-untyped-call]


def _load_stream(serializer: Any, stream: IO[bytes]) -> Iterable[object]:
    if not _next:
        return _load_as_spark_does(serializer, stream)  # type: ignore[no-any-return]
    serve = _next.pop()
    _replace(serializer, "dump_stream", lambda _nothing, out: serve(stream, out))
    return ()


def _replace(owner: object, method: str, by: Callable[..., object]) -> None:
    # As an assignment, mypy would refuse it: it is a method of a class that is not ours.
    setattr(owner, method, by)
