"""The start of a SparkSession, with the settings of conf/spark-defaults.conf.

A session that is started here gets all settings. Under spark-submit the JVM runs already, and the
user's settings win; one warning names the settings that can no longer be changed.

A coordinator's Spark knows nothing of Delta: Python reads and writes all tables
(`pipeline.stream.event_source`, `pipeline.stream.sink`), and Delta's jars would cost a start time,
and a machine without them the network. Who reads or writes Delta tables by Spark, as a benchmark's
floor does, asks for a session with `delta`.

The release of Delta stands in one place, pyproject's `delta-spark`; the jars are of the release
that is installed (`packages`). The package's own `configure_spark_with_delta_pip` names the same
jar but replaces the `spark.jars.packages` of its caller, and cannot tell a user of spark-submit
what to ask for. Its `DeltaTable` rewrites tables, which nothing here does through Spark.

Spark never commits to a root's tables: on a local disk no LogStore of Delta 4.4.0
creates a version only if it is free. Each looks whether the file is there, and then renames over it
or opens it. 1,000 races with a writer that links the version's file at about the same moment: both
were told that they had committed, and the other's commit was replaced, in 3 with LocalLogStore (in
30 with the file system of `spare_forks`), 1 (3) with GCSLogStore, 0 (56) with AzureLogStore, 2 (2)
with S3SingleDriverLogStore, and 0 with HDFSLogStore, Delta's default (1 over RawLocalFs). This
project's writers and delta-rs link, and never replace a commit.
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
from fnmatch import fnmatchcase
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlparse

import pyspark
from msgspec.structs import replace
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from pipeline.errors import Failure
from pipeline.session import class_archive, fork_server
from pipeline.session.checkpoint_location import (
    checkpoint_location,
    is_local,
    store_class,
    store_packages,
    store_settings,
)
from pipeline.session.driver_jvm import (
    BegunJvm,
    JvmEnded,
    begin_jvm,
    connect_jvm,
    end_jvm,
    has_class,
    launch_jvm,
    log_as,
    logs_by_default,
    runs_jvm,
    stderr_to,
)
from pipeline.session.guard import is_known_spark, say_if_unknown, unless_missing
from pipeline.session.hadoop import FILE_MANAGER, forget_clusters, keep_file_manager, spare_forks
from pipeline.session.jars import EXCLUDES, PACKAGES, start_with_jars, with_known_jars
from pipeline.session.scratch import sweep

if TYPE_CHECKING:
    from pipeline.session.jvm_log import JvmLog
    from pipeline.settings import Settings

log = logging.getLogger(__name__)

OLDEST_JAVA = 17
APP_NAME = "group-coordinator"
# This project's own settings: Spark keeps them, and does not know that they can be changed.
OURS = "spark.group-coordinator."
MASTER = "local[*]"
_SCALA = "2.13"
# 9 kB that spare a batch on a local disk its forks of chmod (`spare_forks`).
_BARE_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
_STATE = "org.apache.spark.sql.execution.streaming.state"
STATE_STORES = {
    "rocksdb": f"{_STATE}.RocksDBStateStoreProvider",
    "memory": f"{_STATE}.HDFSBackedStateStoreProvider",
}
# Settings for a streaming checkpoint on a local disk: other stores have managers of their own.
LOCAL_ONLY = (FILE_MANAGER,)
_DELTA_CLASS = "io.delta.sql.DeltaSparkSessionExtension"
_LOG_LEVEL = "spark.log.level"
# What Spark sets in the environment of its Python processes.
_ENV = "spark.executorEnv."
# How long the last lines of a JVM that has ended are waited for.
_LAST_WORDS_S = 5.0
# In local mode the executor lives in the process of the driver, which forgets it if it stood
# still for `spark.network.timeout` (120 s), as on a laptop that slept, or if the clock is set ahead
# by so much. Requests were still answered then, but every 10 s, for ever, Spark tried to register
# the executor anew, which local mode cannot, and logged more than a hundred lines of an error.
_NEVER_LATE = {"spark.storage.blockManagerHeartbeatTimeoutMs": "3650d"}
# The settings of a session that reads and writes Delta tables. The log of a small table is read in
# one task instead of fifty: an append of 200 rows took 0.78 s instead of 2.38 s.
_DELTA = {
    "spark.sql.extensions": _DELTA_CLASS,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
# Delta or the speed depends on these, and a running JVM can no longer change them.
_BEFORE_START = (
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
    "spark.python.unix.domain.socket.enabled",
)


class JavaMissing(Failure):
    """No Java, or one too old for Spark; the message says what to install."""


class SparkNotStarted(Failure):
    """The JVM ended before Spark ran; the message says what it said of that."""


class JarsMissing(Failure):
    """Spark runs without jars of Delta or of a store; the message says what to ask for."""


class SessionStart:
    """A session that is being started; see `create_session`, which also waits for it.

    With a `jvm_log` the JVM starts meanwhile, unless Spark's packages have to be fetched first.
    Raises JavaMissing, and SparkNotStarted.
    """

    def __init__(
        self,
        settings: Settings,
        root: str,
        master: str | None = None,
        jvm_log: JvmLog | None = None,
        delta: bool = False,
        imports: tuple[str, ...] = (),
    ) -> None:
        self._active = SparkSession.getActiveSession()
        # The session of a spark-submit whose JVM this Spark hides until there is one.
        self._given: SparkSession | None = None
        if self._active is not None:
            master = self._active.sparkContext.master
        else:
            say_if_unknown()
        if self._active is None and _is_submitted():
            # That JVM knows the master and the settings that spark-submit was given.
            with unless_missing("settings that Spark takes as it begins are those of spark-submit"):
                launch_jvm()
                master = master or SparkConf().get("spark.master")
            if not runs_jvm():
                self._given = SparkSession.builder.getOrCreate()
                master = self._given.sparkContext.master
        self._master = master or MASTER
        self._location = checkpoint_location(settings, root, self._master)
        self._delta = delta
        self._jvm_log = jvm_log
        self._wanted = spark_settings(settings, self._location, delta)
        if self._master.startswith("local"):
            self._wanted = _NEVER_LATE | self._wanted
        self._begun: BegunJvm | None = None
        # Else pyspark begins it, with the session.
        self._begins_jvm = jvm_log is not None and is_known_spark()
        if self._active is None and not _is_submitted():
            _prepare(self._wanted, self._master, imports)
            known = with_known_jars(self._wanted)
            if known is not None and self._begins_jvm and not runs_jvm():
                self._wanted = known
                self._begun = self._begin_jvm(known)
        # The JVM starts meanwhile.
        sweep()

    def finish(self) -> SparkSession:
        """Return the session, once it is there. Raises as `create_session` does."""
        wanted = self._wanted
        if self._active is not None:
            spark = self._active
            _apply(spark, wanted)
        elif self._given is not None:
            spark = self._given
            theirs = spark.sparkContext.getConf()
            _apply(spark, {key: value for key, value in wanted.items() if not theirs.contains(key)})
            _ship_package(spark)
        elif _is_submitted():
            spark = _session_of_submit(wanted, self._jvm_log)
        elif self._begun is not None:
            spark = self._build(wanted)
        else:
            spark = self._with_packages(wanted)
        with unless_missing("jars that Spark lacks are not looked for"):
            _check_jars(spark, wanted, self._location, self._delta)
        if is_local(self._location):
            with unless_missing("batches take 40 ms longer than they must"):
                spare_forks(spark, packages(self._delta))
            with unless_missing("the class that writes the streaming checkpoint is not looked for"):
                keep_file_manager(spark)
            if self._active is None:
                with unless_missing("batches take 5 ms longer than they must"):
                    forget_clusters(spark)
        return spark

    def _with_packages(self, wanted: dict[str, str]) -> SparkSession:
        """Start the session; without the files that spare forks, if those cannot be fetched."""
        try:
            return start_with_jars(wanted, self._build)
        except SparkNotStarted as error:
            name = _BARE_FILES.rpartition(":")[0].replace(":", "#")
            asked = wanted[PACKAGES].split(",")
            if _BARE_FILES not in asked or f"unresolved dependency: {name}" not in str(error):
                raise
            # What that costs is said once Spark runs (`spare_forks`).
            log.info("%s; it starts without %s", error, _BARE_FILES)
            others = [each for each in asked if each != _BARE_FILES]
            settings = {key: value for key, value in wanted.items() if key != PACKAGES}
            if others:
                settings[PACKAGES] = ",".join(others)
            self._begun = None
            return start_with_jars(settings, self._build)

    def _build(self, settings: dict[str, str]) -> SparkSession:
        if self._begins_jvm and not runs_jvm():
            self._connect(self._begun or self._begin_jvm(settings))
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            # The JVM that pyspark has begun has ended.
            raise SparkNotStarted(f"Spark did not start: {error}") from error

    def _begin_jvm(self, settings: dict[str, str]) -> BegunJvm | None:
        """Begin the JVM; None where this Spark's cannot be begun before the session."""
        assert self._jvm_log is not None
        pipe = self._jvm_log.pipe()
        try:
            with unless_missing("Spark begins later, and what its JVM writes goes to the terminal"):
                return begin_jvm(settings, pipe)
        finally:
            os.close(pipe)
        self._begins_jvm = False
        return None

    def _connect(self, begun: BegunJvm | None) -> None:
        """Have the session be in a JVM that was begun, unless this Spark's cannot be told so."""
        assert self._jvm_log is not None
        if begun is None:
            return
        try:
            with unless_missing("Spark begins a second JVM, which writes to the terminal"):
                connect_jvm(begun)
                return
        except JvmEnded as error:
            self._jvm_log.await_end(_LAST_WORDS_S)
            raise SparkNotStarted(f"Spark did not start: {self._jvm_log.cause or error}") from error
        end_jvm(begun)


def create_session(
    settings: Settings,
    root: str,
    master: str | None = None,
    jvm_log: JvmLog | None = None,
    delta: bool = False,
    imports: tuple[str, ...] = (),
) -> SparkSession:
    """Return a session for a coordinator at `root`: the active one, or a new one.

    `master` null is the one spark-submit was given, else all cores of this machine. `jvm_log` gets
    what the JVM writes to standard error, which is this process's own without it. With `delta` the
    session can read and write Delta tables. `imports` are the modules that its functions import in
    Spark's Python processes, beside Spark's own: on one machine they are imported once for all,
    beside the start of the JVM (`pipeline.session.fork_server`). Raises JavaMissing,
    SparkNotStarted, and JarsMissing where Spark runs already, or under a spark-submit, without the
    packages of Delta, if wanted, or of the store that holds streaming checkpoints.
    """
    return SessionStart(settings, root, master, jvm_log, delta, imports).finish()


def with_location(settings: Settings, root: str, spark: SparkSession) -> Settings:
    """Return the settings with the `checkpoint.location` that they mean, for a node of the root.

    It stays empty if the streaming checkpoints lie beside the tables.
    """
    location = checkpoint_location(settings, root, spark.sparkContext.master or MASTER)
    if location == f"{root.rstrip('/')}/_checkpoints":
        return settings
    ours = replace(settings.coordinator, checkpoint_location=location)
    return replace(settings, coordinator=ours)


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _prepare(wanted: dict[str, str], master: str, imports: tuple[str, ...]) -> None:
    """Complete the settings of a session that is to be started here."""
    java = check_java()
    _prepare_workers(wanted, master, imports)
    options = [wanted.get(class_archive.DRIVER_OPTIONS, "")]
    archive = class_archive.archive_path(java)
    if class_archive.may_use(wanted) and archive.exists():
        options.append(class_archive.use(archive))
    with resources.as_file(resources.files("conf") / "log4j2.properties") as log4j2:
        options.append(f"-Dlog4j2.configurationFile={log4j2.as_uri()}")
    wanted[class_archive.DRIVER_OPTIONS] = " ".join(filter(None, options))
    wanted |= {"spark.app.name": APP_NAME, "spark.master": master}


def spark_settings(settings: Settings, location: str, delta: bool = False) -> dict[str, str]:
    """Return conf/spark-defaults.conf, what [coordinator] decides, and [spark] over both.

    `location` is that of the streaming checkpoint, which is all that a coordinator's Spark reads
    and writes; with `delta` it can also do so with Delta tables.
    What [spark] asks for in packages comes beside what this project needs, and is not excluded.
    """
    wanted = read_defaults() | (_DELTA if delta else {})
    if not is_local(location):
        for key in LOCAL_ONLY:
            del wanted[key]
    ours = settings.coordinator
    wanted["spark.sql.streaming.stateStore.providerClass"] = STATE_STORES[ours.state_store]
    partitions = ours.shuffle_partitions or max(1, (os.cpu_count() or 1) // 2)
    wanted["spark.sql.shuffle.partitions"] = str(partitions)
    wanted |= store_settings(location) | settings.spark
    theirs = [each.strip() for each in settings.spark.get(PACKAGES, "").split(",") if each.strip()]
    added = store_packages(location) + theirs
    wanted[PACKAGES] = ",".join(_join(packages(delta).split(","), added))
    if EXCLUDES not in settings.spark:
        wanted[EXCLUDES] = _without(wanted[EXCLUDES], added)
    return wanted


def _join(ours: list[str], added: list[str]) -> list[str]:
    """The packages of both, and of one package in two releases the one that was added."""
    releases = {each.rpartition(":")[0]: each for each in [*ours, *added]}
    return list(releases.values())


def _without(excludes: str, asked: list[str]) -> str:
    """The patterns that exclude none of the packages asked for."""
    names = [each.rpartition(":")[0] for each in asked]
    kept = [p for p in excludes.split(",") if not any(fnmatchcase(name, p) for name in names)]
    return ",".join(kept)


def packages(delta: bool = False) -> str:
    """The Maven coordinates of what Spark must load: the files without forks, `delta` for Delta.

    Delta's jar is of the release of the installed `delta-spark`, for the installed Spark.
    """
    if not delta:
        return _BARE_FILES
    spark = ".".join(pyspark.__version__.split(".")[:2])
    return f"io.delta:delta-spark_{spark}_{_SCALA}:{version('delta-spark')},{_BARE_FILES}"


def read_defaults() -> dict[str, str]:
    """Read conf/spark-defaults.conf: a key, blanks and a value a line; # begins a comment."""
    text = resources.files("conf").joinpath("spark-defaults.conf").read_text("utf-8")
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            key, value = line.split(maxsplit=1)
            pairs[key] = value.strip()
    return pairs


# --- Java ---------------------------------------------------------------------------------------


def check_java() -> str:
    """Return what the Java that Spark would start says of its version.

    Raises JavaMissing unless it is new enough.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install a JDK or JRE {OLDEST_JAVA} or newer and set JAVA_HOME to it"
    if java is None or not Path(java).exists():
        raise JavaMissing(f"Spark needs Java {OLDEST_JAVA}+ and there is none: {advice}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = java_version(answer.stderr)
    if found is None:
        raise JavaMissing(f"{java} -version does not tell its version: {advice}")
    if found < OLDEST_JAVA:
        raise JavaMissing(f"Spark needs Java {OLDEST_JAVA}+ and {java} is Java {found}: {advice}")
    return answer.stderr


def missing_archive(settings: Settings, root: str) -> Path | None:
    """The archive of Spark's classes, if starts with these settings would use it and it is not."""
    if _is_submitted():
        return None
    if not class_archive.may_use(spark_settings(settings, root)):
        return None
    archive = class_archive.archive_path(check_java())
    return None if archive.exists() else archive


def java_version(text: str) -> int | None:
    """Read the major version out of what `java -version` prints; 8 for "1.8.0"."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


# --- Python workers -----------------------------------------------------------------------------


def _prepare_workers(wanted: dict[str, str], master: str, imports: tuple[str, ...]) -> None:
    here = str(Path(__file__).resolve().parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, paths)])
    # Without it Spark starts the first "python3" on the PATH, which lacks these packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if sys.platform == "linux" and master.startswith("local") and is_known_spark():
        theirs = [(k.removeprefix(_ENV), v) for k, v in wanted.items() if k.startswith(_ENV)]
        try:
            os.environ["PYSPARK_PYTHON"] = fork_server.begin(tuple(theirs), imports).python
        except OSError as error:
            log.warning("each Python process of Spark imports for itself, 6 s of CPU: %s", error)


# --- spark-submit -------------------------------------------------------------------------------


def _session_of_submit(wanted: dict[str, str], jvm_log: JvmLog | None) -> SparkSession:
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
            resources.as_file(resources.files("conf") / "log4j2.properties") as log4j2,
            unless_missing("Spark logs by its own profile"),
        ):
            log_as(log4j2.as_uri())
        if level is not None:
            spark.sparkContext.setLogLevel(level)
    _ship_package(spark)
    return spark


def _ship_package(spark: SparkSession) -> None:
    """Give this package to all Python processes of Spark; --py-files alone does not.

    Workers ignore .whl files, so they get the wheel as .zip. The process that reads a stream's
    source looks for shipped files in a folder where Spark puts none, and is the executors' Python
    (PYSPARK_PYTHON), which may have no packages. It runs beside the driver, so PYTHONPATH leads it
    to the driver's own packages. Executors of other machines do not have these folders.
    """
    package = Path(__file__).parents[2]
    installed = [each for each in sys.path if Path(each).name in ("site-packages", "dist-packages")]
    folders = dict.fromkeys([str(package), *installed])
    spark.sparkContext.environment["PYTHONPATH"] = os.pathsep.join(folders)
    if package.suffix == ".whl" and package.is_file():
        # Executors fetch the copy with their first task, so it stays until this process ends.
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        copy = Path(folder) / f"{package.stem}.zip"
        shutil.copyfile(package, copy)
        spark.sparkContext.addPyFile(str(copy))


def _apply(spark: SparkSession, wanted: dict[str, str]) -> None:
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


def _check_jars(spark: SparkSession, wanted: dict[str, str], location: str, delta: bool) -> None:
    needed = {urlparse(location).scheme: store_class(location)}
    if delta:
        needed["Delta"] = _DELTA_CLASS
    for name, needed_class in needed.items():
        if needed_class is not None and not has_class(spark, needed_class):
            asked = wanted[PACKAGES]
            raise JarsMissing(f"Spark runs without {name}'s jars: start it with --packages {asked}")
