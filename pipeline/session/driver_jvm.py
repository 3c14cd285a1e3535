"""The driver's JVM, controlled through py4j: its start, its configuration and its end.

py4j objects are untyped, hence `Any`. Private modules of pyspark are imported in functions, so that
this module can be imported on a release without them (`pipeline.session.guard`).
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

from group_coordinator.pipeline.session.guard import replace_method
from group_coordinator.pipeline.session.scratch import ScratchFolder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def jvm(spark: SparkSession) -> Any:
    """Return py4j's view of the driver's JVM. Raises AttributeError if Spark hides it."""
    gateway = spark.sparkContext._jvm
    assert gateway is not None  # only Spark Connect has no JVM
    return gateway


def runs_jvm() -> bool:
    """Return whether this process has a JVM, even if its session has been stopped."""
    return getattr(SparkContext, "_gateway", None) is not None


# The system properties and class path resources in which log4j looks for a configuration.
_LOG4J_PROPERTIES = ("log4j2.configurationFile", "log4j.configurationFile")
_LOG4J_FILES = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.json")


class JvmEnded(RuntimeError):
    """The started JVM ended before it accepted a connection."""


class StartedJvm(NamedTuple):
    """A started JVM, and the folder in which it writes its port and secret for py4j."""

    process: subprocess.Popen[bytes]
    folder: ScratchFolder


_CONNECTION = "connection"
# spark-submit runs a short-lived JVM that builds the driver's command. With these options it takes
# less CPU time.
_LAUNCHER = "SPARK_LAUNCHER_OPTS"
_LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_POLL_S = 0.01


def start_jvm(settings: dict[str, str], stderr: int) -> StartedJvm:
    """Start the driver's JVM with these settings; do not wait until it accepts connections.

    Its standard error goes to the file descriptor `stderr`. It ends at the end of its standard
    input, thus with this process. pyspark itself would start the JVM only with the first session,
    and wait for it.
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
    return StartedJvm(process, folder)


def ignore_interrupts() -> None:
    """Ignore SIGINT in a child process, because Ctrl-C reaches all processes of a terminal.

    The driver ends its child processes itself.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def connect_jvm(begun: StartedJvm) -> None:
    """Connect to a started JVM and use it for the sessions of this process. Raises JvmEnded."""
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
    # The process object keeps the JVM's standard input open.
    gateway: Any = SparkContext._gateway
    gateway.proc = begun.process


def end_jvm(begun: StartedJvm) -> None:
    """Terminate a started JVM that is not used."""
    begun.process.terminate()
    begun.process.wait()
    begun.folder.delete()


def launch_jvm() -> None:
    """Use the JVM for the sessions of this process; the environment names its port and secret."""
    gateway = importlib.import_module("pyspark.java_gateway").launch_gateway()
    SparkContext._ensure_initialized(gateway=gateway)


def stderr_to(pipe: str) -> None:
    """Redirect the standard error of the running JVM to a named pipe."""
    java: Any = SparkContext._jvm
    stream = java.java.io.FileOutputStream(pipe)
    java.java.lang.System.setErr(java.java.io.PrintStream(stream, True))


def logs_by_default() -> bool:
    """Return whether log4j has no configuration in the JVM, so that Spark uses its default."""
    java: Any = SparkContext._jvm
    chosen = map(java.java.lang.System.getProperty, _LOG4J_PROPERTIES)
    loader = java.Thread.currentThread().getContextClassLoader()
    files = map(loader.getResource, _LOG4J_FILES)
    return not any(found is not None for found in (*chosen, *files))


def log_as(configuration: str) -> None:
    """Load the log4j configuration at this URI in the JVM; a later session start resets it."""
    java: Any = SparkContext._jvm
    configurator = java.org.apache.logging.log4j.core.config.Configurator
    configurator.reconfigure(java.java.net.URI.create(configuration))


class _Task:
    class Java:
        implements = ("java.lang.Runnable",)

    def __init__(self, task: Callable[[], None]) -> None:
        self._task = task

    def run(self) -> None:
        self._task()


# Spark's own shutdown hook has priority 40; hooks of higher ones run before it.
_BEFORE_SPARK = 100


def before_jvm_ends(spark: SparkSession, task: Callable[[], None], timeout_s: int) -> None:
    """Add a shutdown hook: on SIGTERM or SIGINT the JVM runs `task` first, up to `timeout_s`.

    The hook runs before Spark's, so Spark still works during the task. The task runs in a separate
    thread, also while this process ends.
    """
    gateway = spark.sparkContext._gateway
    importlib.import_module("pyspark.java_gateway").ensure_callback_server_started(gateway)
    java = jvm(spark)
    # A FutureTask catches errors: the call to Python fails if this process has ended.
    hook = java.java.util.concurrent.FutureTask(_Task(task), None)
    hooks = java.org.apache.hadoop.util.ShutdownHookManager.get()
    seconds = java.java.util.concurrent.TimeUnit.SECONDS
    hooks.addShutdownHook(hook, _BEFORE_SPARK, timeout_s, seconds)


def end_quietly() -> None:
    """Suppress the traceback of pyspark's accumulator server at the end of the JVM.

    The JVM closes its connection then, which pyspark's reader thread handles as an error.
    """
    accumulators = importlib.import_module("pyspark.accumulators")
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        replace_method(server, "handle_error", _handle_accumulator_error)


def _handle_accumulator_error(server: socketserver.BaseServer, request: Any, address: Any) -> None:
    if not isinstance(sys.exc_info()[1], EOFError | OSError):
        socketserver.BaseServer.handle_error(server, request, address)


def hadoop_properties(spark: SparkSession) -> Any:
    """Return the driver's Hadoop Configuration, a Java object."""
    return spark.sparkContext._jsc.hadoopConfiguration()


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether the driver's JVM can load a class."""
    loader = jvm(spark).Thread.currentThread().getContextClassLoader()
    return loader.getResource(f"{name.replace('.', '/')}.class") is not None


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema for an Arrow schema."""
    types = importlib.import_module("pyspark.sql.pandas.types")
    return types.from_arrow_schema(schema)  # type: ignore[no-any-return]


@contextmanager
def by_value(module: ModuleType) -> Iterator[None]:
    """Pickle the functions of a module by value, so that executors do not need the module."""
    cloudpickle = importlib.import_module("pyspark.cloudpickle")
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
