"""The SparkSession, with the settings of conf/spark-defaults.conf.

Started by us, it gets all of them. Under spark-submit the JVM is there already, and what its user
set wins; what can no longer be set is named in one warning.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from pyspark import SparkConf
from pyspark.sql import SparkSession

from pipeline.errors import Failure
from pipeline.stream.hadoop import forget_clusters, has_class, spare_forks

if TYPE_CHECKING:
    from pipeline.settings import Settings

log = logging.getLogger(__name__)

OLDEST_JAVA = 17
APP_NAME = "group-coordinator"
# Settings of ours that Spark keeps for us, and does not know to be modifiable.
OURS = "spark.group-coordinator."
MASTER = "local[*]"
_STATE = "org.apache.spark.sql.execution.streaming.state"
STATE_STORES = {
    "rocksdb": f"{_STATE}.RocksDBStateStoreProvider",
    "memory": f"{_STATE}.HDFSBackedStateStoreProvider",
}
# Right for a root on a local disk alone: object stores have managers of their own.
LOCAL_ONLY = ("spark.sql.streaming.checkpointFileManagerClass",)
# A JVM that already runs cannot take these up any more, and Delta or the speed depends on them.
_BEFORE_START = (
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
    "spark.python.unix.domain.socket.enabled",
)


class JavaMissing(Failure):
    """No Java, or one too old for Spark; the message says what to install."""


class DeltaMissing(Failure):
    """Spark runs without Delta's jars; the message says which package to ask for."""


def create_session(settings: Settings, root: str, master: str | None = None) -> SparkSession:
    """Return a session for a coordinator at `root`: the active one, or a new one.

    `master` null is the one spark-submit was given, else all cores of this machine.
    Raises JavaMissing, and DeltaMissing under a spark-submit without Delta's package.
    """
    wanted = spark_settings(settings, root)
    active = SparkSession.getActiveSession()
    if active is None:
        spark = _new_session(wanted, master)
    else:
        spark = active
        _apply(spark, wanted)
    if is_local(root):
        spare_forks(spark, wanted["spark.jars.packages"])
        if active is None:
            forget_clusters(spark)
    return spark


def _new_session(wanted: dict[str, str], master: str | None) -> SparkSession:
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _session_of_submit(wanted)
    check_java()
    _prepare_workers()
    builder = SparkSession.builder.appName(APP_NAME).master(master or MASTER)
    options = wanted.get("spark.driver.extraJavaOptions", "")
    with resources.as_file(resources.files("conf") / "log4j2.properties") as log4j2:
        logging_option = f"-Dlog4j2.configurationFile={log4j2.as_uri()}"
        wanted["spark.driver.extraJavaOptions"] = f"{logging_option} {options}".strip()
        for key, value in wanted.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()


def spark_settings(settings: Settings, root: str) -> dict[str, str]:
    """Return conf/spark-defaults.conf, what [coordinator] decides, and [spark] over both."""
    wanted = read_defaults()
    if not is_local(root):
        for key in LOCAL_ONLY:
            del wanted[key]
    ours = settings.coordinator
    wanted["spark.sql.streaming.stateStore.providerClass"] = STATE_STORES[ours.state_store]
    partitions = ours.shuffle_partitions or max(1, (os.cpu_count() or 1) // 2)
    wanted["spark.sql.shuffle.partitions"] = str(partitions)
    return wanted | settings.spark


def read_defaults() -> dict[str, str]:
    """Read conf/spark-defaults.conf: a key, blanks and a value a line; # begins a comment."""
    text = resources.files("conf").joinpath("spark-defaults.conf").read_text("utf-8")
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            key, value = line.split(maxsplit=1)
            pairs[key] = value.strip()
    return pairs


def is_local(root: str) -> bool:
    """Return whether the root is a folder of this machine."""
    return urlparse(root).scheme in ("", "file")


# --- Java ---------------------------------------------------------------------------------------


def check_java() -> None:
    """Raise JavaMissing unless the Java that Spark would start is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install a JDK or JRE {OLDEST_JAVA} or newer and set JAVA_HOME to it"
    if java is None or not Path(java).exists():
        raise JavaMissing(f"Spark needs Java {OLDEST_JAVA}+ and there is none: {advice}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = java_version(answer.stderr)
    if version is None:
        raise JavaMissing(f"{java} -version does not tell its version: {advice}")
    if version < OLDEST_JAVA:
        raise JavaMissing(f"Spark needs Java {OLDEST_JAVA}+ and {java} is Java {version}: {advice}")


def java_version(text: str) -> int | None:
    """Read the major version out of what `java -version` prints; 8 for "1.8.0"."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


# --- Python workers -----------------------------------------------------------------------------


def _prepare_workers() -> None:
    # Spark would start whatever "python3" is first on the PATH, without our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    here = str(Path(__file__).resolve().parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, paths)])


# --- spark-submit -------------------------------------------------------------------------------


def _session_of_submit(wanted: dict[str, str]) -> SparkSession:
    """Start the session in the JVM of spark-submit; what its user set wins."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = SparkConf()
    builder = SparkSession.builder
    for key, value in wanted.items():
        if not given.contains(key):
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _check_delta(spark, wanted)
    _ship_package(spark)
    return spark


def _ship_package(spark: SparkSession) -> None:
    """Give this package to Python's processes, which --py-files alone does not.

    Workers pass over .whl files, so they get ours under another name. The process that reads a
    stream's source looks for what was shipped in a folder where nobody puts it; it runs beside the
    driver, and finds the driver's files.
    """
    package = Path(__file__).parents[2]
    spark.sparkContext.environment["PYTHONPATH"] = str(package)
    if package.suffix == ".whl" and package.is_file():
        # Executors fetch the copy when their first task comes.
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        copy = Path(folder) / f"{package.stem}.zip"
        shutil.copyfile(package, copy)
        spark.sparkContext.addPyFile(str(copy))


def _apply(spark: SparkSession, wanted: dict[str, str]) -> None:
    """Set in a running session what can be set, and warn of the rest."""
    for key, value in wanted.items():
        if key.startswith(OURS) or spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    late = [key for key in _BEFORE_START if spark.conf.get(key, None) != wanted[key]]
    if late:
        pairs = ", ".join(f"{key}={wanted[key]}" for key in late)
        log.warning("Spark runs already; to be set before its start: %s", pairs)
    _check_delta(spark, wanted)


def _check_delta(spark: SparkSession, wanted: dict[str, str]) -> None:
    if not has_class(spark, "io.delta.sql.DeltaSparkSessionExtension"):
        packages = wanted["spark.jars.packages"]
        raise DeltaMissing(f"Spark runs without Delta: start it with --packages {packages}")
