"""The start of a SparkSession, with the settings of conf/spark-defaults.conf.

A session that is started here gets all settings (`pipeline.session.spark_settings`). Under
spark-submit the JVM already runs, and the user's settings win (`pipeline.session.submitted`). One
warning names the settings that can no longer be changed.

Spark never commits to a root's tables, because on a local disk no LogStore of Delta 4.4.0 creates
the file of a version with compare-and-set. It checks whether the file exists, then renames a file
over it or opens it. So it replaces a commit that another writer makes in between, and both writers
report success. This project's writers and delta-rs create the file with a hard link, which never
replaces one.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from msgspec.structs import replace
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from group_coordinator import pipeline
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.session import fork_server
from group_coordinator.pipeline.session.checkpoint_location import (
    checkpoint_location,
    is_local,
    store_class,
)
from group_coordinator.pipeline.session.driver_jvm import (
    JvmEnded,
    StartedJvm,
    connect_jvm,
    end_jvm,
    has_class,
    launch_jvm,
    runs_jvm,
    start_jvm,
)
from group_coordinator.pipeline.session.guard import is_known_spark, say_if_unknown, unless_missing
from group_coordinator.pipeline.session.jars import PACKAGES, start_with_jars, with_known_jars
from group_coordinator.pipeline.session.java import (
    DRIVER_OPTIONS,
    archive_options,
    archive_path,
    check_java,
    may_use_archive,
)
from group_coordinator.pipeline.session.scratch import sweep
from group_coordinator.pipeline.session.spark_settings import (
    BARE_FILES,
    DELTA_CLASS,
    forget_clusters,
    keep_file_manager,
    packages,
    spare_forks,
    spark_settings,
)
from group_coordinator.pipeline.session.submitted import (
    apply,
    is_submitted,
    session_of_submit,
    ship_package,
)

if TYPE_CHECKING:
    from group_coordinator.pipeline.session.jvm_log import JvmLog
    from group_coordinator.pipeline.settings import Settings

log = logging.getLogger(__name__)

APP_NAME = "group-coordinator"
MASTER = "local[*]"
# The prefix of settings that become environment variables of Spark's Python processes.
_ENV = "spark.executorEnv."
# How long the start waits for the last lines of an ended JVM, s.
_LAST_WORDS_S = 5.0
# In local mode the executor runs in the driver's process. The driver removes it without a heartbeat
# for `spark.network.timeout` (120 s): after a laptop's sleep, or a clock set ahead by that much.
# Requests were still answered then. But every 10 s Spark tried to register the executor again,
# which local mode does not support, and logged an error of more than a hundred lines.
_NEVER_LATE = {"spark.storage.blockManagerHeartbeatTimeoutMs": "3650d"}


class SparkNotStarted(Failure):
    """The JVM ended before Spark ran; the message has the reason that the JVM printed."""


class JarsMissing(Failure):
    """Spark runs without the jars of Delta or of a store; the message names the packages."""


class SessionStart:
    """The start of a session for a coordinator at `root`; `finish` waits for the session.

    An active session is used; without one, a new session is started. By default, `master` is set by
    spark-submit; without spark-submit it is all cores of this machine.

    The JVM's standard error goes to `jvm_log`. On a known Spark release the JVM then starts in the
    background, unless Spark's packages have to be downloaded first. Without `jvm_log`, the JVM
    inherits the standard error of this process. With `delta` the session can read and write Delta
    tables.

    `imports` are the modules that the session's functions import in Spark's Python processes, in
    addition to Spark's modules. With a local master they are imported once, while the JVM starts
    (`pipeline.session.fork_server`). Raises JavaMissing and SparkNotStarted.
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
        # The session of a spark-submit, if this Spark hides its JVM before the session exists.
        self._given: SparkSession | None = None
        if self._active is not None:
            master = self._active.sparkContext.master
        else:
            say_if_unknown()
        if self._active is None and is_submitted():
            # That JVM has the master and the settings of spark-submit.
            with unless_missing("settings that Spark reads at its start are those of spark-submit"):
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
        self._begun: StartedJvm | None = None
        # Otherwise pyspark starts the JVM with the session.
        self._starts_jvm = jvm_log is not None and is_known_spark()
        if self._active is None and not is_submitted():
            _prepare(self._wanted, self._master, imports)
            known = with_known_jars(self._wanted)
            if known is not None and self._starts_jvm and not runs_jvm():
                self._wanted = known
                self._begun = self._start_jvm(known)
        # The JVM starts in the background meanwhile.
        sweep()

    def finish(self) -> SparkSession:
        """Wait for the session and return it. Raises SparkNotStarted.

        Raises JarsMissing if the session lacks the jars of Delta (with `delta`) or of the store of
        the streaming checkpoints. That can happen if Spark already runs, or under spark-submit.
        """
        wanted = self._wanted
        if self._active is not None:
            spark = self._active
            apply(spark, wanted)
        elif self._given is not None:
            spark = self._given
            theirs = spark.sparkContext.getConf()
            apply(spark, {key: value for key, value in wanted.items() if not theirs.contains(key)})
            ship_package(spark)
        elif is_submitted():
            spark = session_of_submit(wanted, self._jvm_log)
        elif self._begun is not None:
            spark = self._build(wanted)
        else:
            spark = self._with_packages(wanted)
        with unless_missing("missing jars are not detected"):
            _check_jars(spark, wanted, self._location, self._delta)
        if is_local(self._location):
            with unless_missing("batches take 40 ms longer than necessary"):
                spare_forks(spark, packages(self._delta))
            with unless_missing("the class that writes the streaming checkpoint is not checked"):
                keep_file_manager(spark)
            if self._active is None:
                with unless_missing("batches take 5 ms longer than necessary"):
                    forget_clusters(spark)
        return spark

    def _with_packages(self, wanted: dict[str, str]) -> SparkSession:
        """Start the session; if Ivy cannot find `BARE_FILES`, start it without that package."""
        try:
            return start_with_jars(wanted, self._build)
        except SparkNotStarted as error:
            name = BARE_FILES.rpartition(":")[0].replace(":", "#")
            asked = wanted[PACKAGES].split(",")
            if BARE_FILES not in asked or f"unresolved dependency: {name}" not in str(error):
                raise
            # `spare_forks` warns of the cost once Spark runs.
            log.info("%s; Spark starts without %s", error, BARE_FILES)
            others = [each for each in asked if each != BARE_FILES]
            settings = {key: value for key, value in wanted.items() if key != PACKAGES}
            if others:
                settings[PACKAGES] = ",".join(others)
            self._begun = None
            return start_with_jars(settings, self._build)

    def _build(self, settings: dict[str, str]) -> SparkSession:
        if self._starts_jvm and not runs_jvm():
            self._connect(self._begun or self._start_jvm(settings))
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            # The JVM that pyspark has started has ended.
            raise SparkNotStarted(f"Spark did not start: {error}") from error

    def _start_jvm(self, settings: dict[str, str]) -> StartedJvm | None:
        """Start the JVM; return None if this Spark cannot start it before the session."""
        assert self._jvm_log is not None
        pipe = self._jvm_log.pipe()
        try:
            with unless_missing("Spark starts later, and the JVM's output goes to the terminal"):
                return start_jvm(settings, pipe)
        finally:
            os.close(pipe)
        self._starts_jvm = False
        return None

    def _connect(self, begun: StartedJvm | None) -> None:
        """Connect to a started JVM; end it if this Spark cannot use it. Raises SparkNotStarted."""
        assert self._jvm_log is not None
        if begun is None:
            return
        try:
            with unless_missing("Spark starts a second JVM, which writes to the terminal"):
                connect_jvm(begun)
                return
        except JvmEnded as error:
            self._jvm_log.await_end(_LAST_WORDS_S)
            raise SparkNotStarted(f"Spark did not start: {self._jvm_log.cause or error}") from error
        end_jvm(begun)


def with_location(settings: Settings, root: str, spark: SparkSession) -> Settings:
    """Return the settings with the effective `checkpoint.location` of the root's nodes.

    It is unchanged if the streaming checkpoints are in the root.
    """
    location = checkpoint_location(settings, root, spark.sparkContext.master or MASTER)
    if location == f"{root.rstrip('/')}/_checkpoints":
        return settings
    ours = replace(settings.coordinator, checkpoint_location=location)
    return replace(settings, coordinator=ours)


def _prepare(wanted: dict[str, str], master: str, imports: tuple[str, ...]) -> None:
    """Add the settings of a session with a new JVM to `wanted`. Raises JavaMissing."""
    java = check_java()
    _prepare_workers(wanted, master, imports)
    options = [wanted.get(DRIVER_OPTIONS, "")]
    archive = archive_path(java)
    if may_use_archive(wanted) and archive.exists():
        options.append(archive_options(archive))
    with resources.as_file(
        resources.files("group_coordinator.conf") / "log4j2.properties"
    ) as log4j2:
        options.append(f"-Dlog4j2.configurationFile={log4j2.as_uri()}")
    wanted[DRIVER_OPTIONS] = " ".join(filter(None, options))
    wanted |= {"spark.app.name": APP_NAME, "spark.master": master}


def _prepare_workers(wanted: dict[str, str], master: str, imports: tuple[str, ...]) -> None:
    here = str(Path(pipeline.__file__).parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, paths)])
    # By default Spark starts the first "python3" on the PATH, which may lack these packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if sys.platform == "linux" and master.startswith("local") and is_known_spark():
        theirs = [(k.removeprefix(_ENV), v) for k, v in wanted.items() if k.startswith(_ENV)]
        try:
            os.environ["PYSPARK_PYTHON"] = fork_server.begin(tuple(theirs), imports).python
        except OSError as error:
            log.warning(
                "each Python process of Spark imports its modules itself, 6 s of CPU time: %s",
                error,
            )


def missing_archive(settings: Settings, root: str) -> Path | None:
    """Return the path of the class archive if a start could use it but it does not exist.

    Otherwise return None.
    """
    if is_submitted():
        return None
    if not may_use_archive(spark_settings(settings, root)):
        return None
    archive = archive_path(check_java())
    return None if archive.exists() else archive


def _check_jars(spark: SparkSession, wanted: dict[str, str], location: str, delta: bool) -> None:
    needed = {urlparse(location).scheme: store_class(location)}
    if delta:
        needed["Delta"] = DELTA_CLASS
    for name, needed_class in needed.items():
        if needed_class is not None and not has_class(spark, needed_class):
            asked = wanted[PACKAGES]
            raise JarsMissing(f"Spark runs without {name}'s jars: start it with --packages {asked}")
