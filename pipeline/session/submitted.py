"""A session in the JVM that spark-submit has started; the user's settings win."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkConf
from pyspark.sql import SparkSession

from group_coordinator import pipeline
from group_coordinator.pipeline.session.driver_jvm import log_as, logs_by_default, stderr_to
from group_coordinator.pipeline.session.guard import unless_missing

if TYPE_CHECKING:
    from group_coordinator.pipeline.session.jvm_log import JvmLog

log = logging.getLogger(__name__)

# The prefix of this project's settings. Spark does not report them as modifiable, but they are.
OURS = "spark.group-coordinator."
_LOG_LEVEL = "spark.log.level"
# Settings that Delta or the speed depends on. They cannot be changed after the JVM's start.
_BEFORE_START = (
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
    "spark.python.unix.domain.socket.enabled",
)


def is_submitted() -> bool:
    """Return whether spark-submit has started this process and its JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def session_of_submit(wanted: dict[str, str], jvm_log: JvmLog | None) -> SparkSession:
    """Start the session in the JVM of spark-submit; the user's settings win."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    by_default = False
    if jvm_log is not None:
        with unless_missing("the JVM's output goes to the terminal"):
            stderr_to(jvm_log.named_pipe())
            by_default = logs_by_default()
    given = SparkConf()
    level = given.get(_LOG_LEVEL) or wanted.get(_LOG_LEVEL)
    builder = SparkSession.builder
    if by_default:
        # This holds until `log_as` below, because the start of a session resets the configuration.
        builder = builder.config(_LOG_LEVEL, level or "WARN")
    for key, value in wanted.items():
        if not given.contains(key):
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if by_default:
        with (
            resources.as_file(
                resources.files("group_coordinator.conf") / "log4j2.properties"
            ) as log4j2,
            unless_missing("Spark logs with its default profile"),
        ):
            log_as(log4j2.as_uri())
        if level is not None:
            spark.sparkContext.setLogLevel(level)
    ship_package(spark)
    return spark


def ship_package(spark: SparkSession) -> None:
    """Make this package available to all Python processes of Spark; --py-files does not suffice.

    Workers ignore .whl files, so they get a copy of the wheel as .zip. The process that reads the
    source of a stream searches shipped files in a folder where Spark puts none, so it finds the
    package by `driver_path`.
    """
    package = _package()
    spark.sparkContext.environment["PYTHONPATH"] = driver_path()
    if package.suffix == ".whl" and package.is_file():
        # Executors download the copy with their first task, so it stays until this process ends.
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        copy = Path(folder) / f"{package.stem}.zip"
        shutil.copyfile(package, copy)
        spark.sparkContext.addPyFile(str(copy))


def driver_path() -> str:
    """Return the PYTHONPATH with which a Python process of the driver finds the driver's packages.

    On the driver's machine, Spark starts the executors' Python (PYSPARK_PYTHON), which may lack the
    packages, for the schema of a Python data source and the offsets of a stream. Executors on other
    machines do not have these folders, and use the shipped files.
    """
    installed = [each for each in sys.path if Path(each).name in ("site-packages", "dist-packages")]
    return os.pathsep.join(dict.fromkeys([str(_package()), *installed]))


def _package() -> Path:
    return Path(pipeline.__file__).parents[2]


def apply(spark: SparkSession, wanted: dict[str, str]) -> None:
    """Set the modifiable settings of a running session; warn if `_BEFORE_START` ones differ."""
    for key, value in wanted.items():
        if key.startswith(OURS) or spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    late = [
        key for key in _BEFORE_START if key in wanted and spark.conf.get(key, None) != wanted[key]
    ]
    if late:
        pairs = ", ".join(f"{key}={wanted[key]}" for key in late)
        log.warning("Spark is already running; set this before its start: %s", pairs)
