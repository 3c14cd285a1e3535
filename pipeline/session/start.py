"""The start of a SparkSession, with the settings of conf/spark-defaults.conf.

A session that is started here gets all settings (`pipeline.session.spark_settings`). Under
spark-submit the JVM runs already, and the user's settings win (`pipeline.session.submitted`); one
warning names the settings that can no longer be changed.

Spark never commits to a root's tables: on a local disk no LogStore of Delta 4.4.0 creates a version
only if it is free. Each looks whether the file is there, and then renames over it or opens it.
Another writer's commit of the same moment is replaced then, and both are told that they have
committed. Each of Delta's LogStores was seen to do so, some only over another local file system, as
that of `spare_forks`. This project's writers and delta-rs link, and never replace a commit.
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
from group_coordinator.pipeline.session import class_archive, fork_server
from group_coordinator.pipeline.session.checkpoint_location import (
    checkpoint_location,
    is_local,
    store_class,
)
from group_coordinator.pipeline.session.driver_jvm import (
    BegunJvm,
    JvmEnded,
    begin_jvm,
    connect_jvm,
    end_jvm,
    has_class,
    launch_jvm,
    runs_jvm,
)
from group_coordinator.pipeline.session.guard import is_known_spark, say_if_unknown, unless_missing
from group_coordinator.pipeline.session.hadoop import (
    forget_clusters,
    keep_file_manager,
    spare_forks,
)
from group_coordinator.pipeline.session.jars import PACKAGES, start_with_jars, with_known_jars
from group_coordinator.pipeline.session.java import check_java
from group_coordinator.pipeline.session.scratch import sweep
from group_coordinator.pipeline.session.spark_settings import (
    BARE_FILES,
    DELTA_CLASS,
    packages,
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
# What Spark sets in the environment of its Python processes.
_ENV = "spark.executorEnv."
# How long the last lines of a JVM that has ended are waited for.
_LAST_WORDS_S = 5.0
# In local mode the executor lives in the process of the driver, which forgets it if it stood
# still for `spark.network.timeout` (120 s), as on a laptop that slept, or if the clock is set ahead
# by so much. Requests were still answered then, but every 10 s, for ever, Spark tried to register
# the executor anew, which local mode cannot, and logged more than a hundred lines of an error.
_NEVER_LATE = {"spark.storage.blockManagerHeartbeatTimeoutMs": "3650d"}


class SparkNotStarted(Failure):
    """The JVM ended before Spark ran; the message says what it said of that."""


class JarsMissing(Failure):
    """Spark runs without jars of Delta or of a store; the message says what to ask for."""


class SessionStart:
    """A session for a coordinator at `root` that is being started; `finish` waits for it.

    It is the active session, or a new one. `master` null is the one spark-submit was given, else
    all cores of this machine. `jvm_log` gets what the JVM writes to standard error, which is this
    process's own without it; with it the JVM starts meanwhile, unless Spark's packages have to be
    fetched first. With `delta` the session can read and write Delta tables. `imports` are the
    modules that its functions import in Spark's Python processes, beside Spark's own: on one
    machine they are imported once for all, beside the start of the JVM
    (`pipeline.session.fork_server`). Raises JavaMissing, and SparkNotStarted.
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
        if self._active is None and is_submitted():
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
        if self._active is None and not is_submitted():
            _prepare(self._wanted, self._master, imports)
            known = with_known_jars(self._wanted)
            if known is not None and self._begins_jvm and not runs_jvm():
                self._wanted = known
                self._begun = self._begin_jvm(known)
        # The JVM starts meanwhile.
        sweep()

    def finish(self) -> SparkSession:
        """Return the session, once it is there.

        Raises SparkNotStarted, and JarsMissing where Spark runs already, or under a spark-submit,
        without the packages of Delta, if wanted, or of the store that holds streaming checkpoints.
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
            name = BARE_FILES.rpartition(":")[0].replace(":", "#")
            asked = wanted[PACKAGES].split(",")
            if BARE_FILES not in asked or f"unresolved dependency: {name}" not in str(error):
                raise
            # What that costs is said once Spark runs (`spare_forks`).
            log.info("%s; it starts without %s", error, BARE_FILES)
            others = [each for each in asked if each != BARE_FILES]
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


def with_location(settings: Settings, root: str, spark: SparkSession) -> Settings:
    """Return the settings with the `checkpoint.location` that they mean, for a node of the root.

    It stays empty if the streaming checkpoints lie beside the tables.
    """
    location = checkpoint_location(settings, root, spark.sparkContext.master or MASTER)
    if location == f"{root.rstrip('/')}/_checkpoints":
        return settings
    ours = replace(settings.coordinator, checkpoint_location=location)
    return replace(settings, coordinator=ours)


def _prepare(wanted: dict[str, str], master: str, imports: tuple[str, ...]) -> None:
    """Complete the settings of a session that is to be started here."""
    java = check_java()
    _prepare_workers(wanted, master, imports)
    options = [wanted.get(class_archive.DRIVER_OPTIONS, "")]
    archive = class_archive.archive_path(java)
    if class_archive.may_use(wanted) and archive.exists():
        options.append(class_archive.use(archive))
    with resources.as_file(
        resources.files("group_coordinator.conf") / "log4j2.properties"
    ) as log4j2:
        options.append(f"-Dlog4j2.configurationFile={log4j2.as_uri()}")
    wanted[class_archive.DRIVER_OPTIONS] = " ".join(filter(None, options))
    wanted |= {"spark.app.name": APP_NAME, "spark.master": master}


def _prepare_workers(wanted: dict[str, str], master: str, imports: tuple[str, ...]) -> None:
    here = str(Path(pipeline.__file__).parents[2])
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


def missing_archive(settings: Settings, root: str) -> Path | None:
    """The archive of Spark's classes, if starts with these settings would use it and it is not."""
    if is_submitted():
        return None
    if not class_archive.may_use(spark_settings(settings, root)):
        return None
    archive = class_archive.archive_path(check_java())
    return None if archive.exists() else archive


def _check_jars(spark: SparkSession, wanted: dict[str, str], location: str, delta: bool) -> None:
    needed = {urlparse(location).scheme: store_class(location)}
    if delta:
        needed["Delta"] = DELTA_CLASS
    for name, needed_class in needed.items():
        if needed_class is not None and not has_class(spark, needed_class):
            asked = wanted[PACKAGES]
            raise JarsMissing(f"Spark runs without {name}'s jars: start it with --packages {asked}")
