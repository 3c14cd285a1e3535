"""The driver's JVM, which Python reaches through py4j: how it begins, what it is told, how it ends.

py4j's objects have no types: hence `Any`. What pyspark has for itself is imported where it is used:
a release that has it no more imports this module all the same (`pipeline.session.guard`).
"""

from __future__ import annotations

import importlib
import os
import shlex
import signal
import socketserver
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import SparkContext

from group_coordinator.pipeline.session.group_stream import replace
from group_coordinator.pipeline.session.scratch import ScratchFolder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def jvm(spark: SparkSession) -> Any:
    """The driver's JVM: its classes by their full names. Raises AttributeError if it is hidden."""
    gateway = spark.sparkContext._jvm
    assert gateway is not None  # only Spark Connect has none
    return gateway


def runs_jvm() -> bool:
    """Whether this process has a JVM, be it one whose session has been stopped."""
    return getattr(SparkContext, "_gateway", None) is not None


# Where log4j looks for a configuration.
_LOG4J_PROPERTIES = ("log4j2.configurationFile", "log4j.configurationFile")
_LOG4J_FILES = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.json")


class JvmEnded(RuntimeError):
    """The JVM that was launched ended before it could be spoken to."""


class BegunJvm(NamedTuple):
    """A JVM that has been started, and the folder in which it says how it is spoken to."""

    process: subprocess.Popen[bytes]
    folder: ScratchFolder


_CONNECTION = "connection"
# spark-submit has a JVM of a moment put together the command of the driver's: with these options it
# takes less CPU.
_LAUNCHER = "SPARK_LAUNCHER_OPTS"
_LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_POLL_S = 0.01


def begin_jvm(settings: dict[str, str], stderr: int) -> BegunJvm:
    """Start the driver's JVM with these settings, without waiting until it can be spoken to.

    What it writes to standard error goes to the file descriptor `stderr`. It ends with its input,
    which is when this process ends. pyspark would start it with the first session, wait for it, and
    have it share this process's standard error.
    """
    home = importlib.import_module("pyspark.find_spark_home")._find_spark_home()
    command = [f"{home}/bin/spark-submit"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    folder = ScratchFolder()
    told = {
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": f"{folder.path}/{_CONNECTION}",
        _LAUNCHER: os.environ.get(_LAUNCHER, _LAUNCHER_OPTIONS),
    }
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
    connection = begun.folder.path / _CONNECTION
    try:
        while not connection.is_file():
            if begun.process.poll() is not None:
                raise JvmEnded(f"the JVM ended with status {begun.process.returncode}")
            time.sleep(_POLL_S)
        serializers = importlib.import_module("pyspark.serializers")
        with connection.open("rb") as said:
            port = serializers.read_int(said)
            secret = serializers.UTF8Deserializer().loads(said)
    finally:
        begun.folder.delete()
    os.environ |= {_PORT: str(port), _SECRET: secret}
    try:
        launch_jvm()
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    # The JVM's input is open as long as this is.
    gateway: Any = SparkContext._gateway
    gateway.proc = begun.process


def end_jvm(begun: BegunJvm) -> None:
    """End a JVM that was begun and is not used."""
    begun.process.terminate()
    begun.process.wait()
    begun.folder.delete()


def launch_jvm() -> None:
    """Have this process's sessions be in the JVM that the environment names."""
    gateway = importlib.import_module("pyspark.java_gateway").launch_gateway()
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
    importlib.import_module("pyspark.java_gateway").ensure_callback_server_started(gateway)
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
    accumulators = importlib.import_module("pyspark.accumulators")
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        replace(server, "handle_error", _handle_accumulator_error)


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


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema that Arrow columns of these types have in Spark."""
    types = importlib.import_module("pyspark.sql.pandas.types")
    return types.from_arrow_schema(schema)  # type: ignore[no-any-return]


@contextmanager
def by_value(module: ModuleType) -> Iterator[None]:
    """Have the functions of a module be sent to executors whole, which then need not have it."""
    cloudpickle = importlib.import_module("pyspark.cloudpickle")
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
