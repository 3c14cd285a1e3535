"""A session in the JVM of spark-submit, which runs before Python does; the user's settings win."""

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

# This project's own settings: Spark keeps them, and does not know that they can be changed.
OURS = "spark.group-coordinator."
_LOG_LEVEL = "spark.log.level"
# Delta or the speed depends on these, and a running JVM can no longer change them.
_BEFORE_START = (
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
    "spark.python.unix.domain.socket.enabled",
)


def is_submitted() -> bool:
    """Whether spark-submit has started this process, and its JVM with it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def session_of_submit(wanted: dict[str, str], jvm_log: JvmLog | None) -> SparkSession:
    """Start the session in the JVM of spark-submit; the user's settings win."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    by_default = False
    if jvm_log is not None:
        with unless_missing("what the JVM writes goes to the terminal"):
            stderr_to(jvm_log.named_pipe())
            by_default = logs_by_default()
    given = SparkConf()
    level = given.get(_LOG_LEVEL) or wanted.get(_LOG_LEVEL)
    builder = SparkSession.builder
    if by_default:
        # Until it is told how to log, below, which a session that begins undoes.
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
            unless_missing("Spark logs by its own profile"),
        ):
            log_as(log4j2.as_uri())
        if level is not None:
            spark.sparkContext.setLogLevel(level)
    ship_package(spark)
    return spark


def ship_package(spark: SparkSession) -> None:
    """Give this package to all Python processes of Spark; --py-files alone does not.

    Workers ignore .whl files, so they get the wheel as .zip. The process that reads a stream's
    source looks for shipped files in a folder where Spark puts none, and finds them by
    `driver_path`.
    """
    package = _package()
    spark.sparkContext.environment["PYTHONPATH"] = driver_path()
    if package.suffix == ".whl" and package.is_file():
        # Executors fetch the copy with their first task, so it stays until this process ends.
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        copy = Path(folder) / f"{package.stem}.zip"
        shutil.copyfile(package, copy)
        spark.sparkContext.addPyFile(str(copy))


def driver_path() -> str:
    """Return the PYTHONPATH by which a process beside the driver finds the driver's packages.

    Spark asks a Python source for its rows' types, and a stream's source for its offsets, beside
    the driver and by the executors' Python (PYSPARK_PYTHON), which may have no packages. Executors
    of other machines do not have these folders, and find what is shipped to them.
    """
    installed = [each for each in sys.path if Path(each).name in ("site-packages", "dist-packages")]
    return os.pathsep.join(dict.fromkeys([str(_package()), *installed]))


def _package() -> Path:
    """What has this package: a folder, or a wheel."""
    return Path(pipeline.__file__).parents[2]


def apply(spark: SparkSession, wanted: dict[str, str]) -> None:
    """Set in a running session what can still be set, and warn of the rest."""
    for key, value in wanted.items():
        if key.startswith(OURS) or spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    late = [
        key for key in _BEFORE_START if key in wanted and spark.conf.get(key, None) != wanted[key]
    ]
    if late:
        pairs = ", ".join(f"{key}={wanted[key]}" for key in late)
        log.warning("Spark runs already; to be set before its start: %s", pairs)
