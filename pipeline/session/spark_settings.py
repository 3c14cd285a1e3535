"""The settings of a session, from conf/spark-defaults.conf, [coordinator] and [spark].

`spark_settings` returns the settings with which a session starts. `spare_forks`,
`keep_file_manager` and `forget_clusters` then change settings of Hadoop, which saves time in each
micro-batch if the checkpoints are on a local disk.

A coordinator's session does not load Delta, because Python reads and writes all tables. Delta's
jars would make the start slower, and need the network. Code that reads or writes Delta tables
through Spark requests a session with `delta`. It gets the jar of the installed `delta-spark`, but
not by its `configure_spark_with_delta_pip`, which would replace the caller's `spark.jars.packages`.
"""

from __future__ import annotations

import logging
import os
from fnmatch import fnmatchcase
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec
import pyspark

from group_coordinator.pipeline.session.checkpoint_location import (
    is_local,
    store_packages,
    store_settings,
)
from group_coordinator.pipeline.session.driver_jvm import hadoop_properties, has_class, jvm
from group_coordinator.pipeline.session.jars import EXCLUDES, PACKAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from group_coordinator.pipeline.settings import Settings

log = logging.getLogger(__name__)
_SCALA = "2.13"
# A small jar with a local file system that does not fork chmod (`spare_forks`).
BARE_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
DELTA_CLASS = "io.delta.sql.DeltaSparkSessionExtension"
# The settings of a session that reads and writes Delta tables, in addition to Delta's jar. One task
# instead of fifty reads the log of a small table, which makes a small append faster.
DELTA = {
    "spark.sql.extensions": DELTA_CLASS,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
_STATE = "org.apache.spark.sql.execution.streaming.state"
STATE_STORES = {
    "rocksdb": f"{_STATE}.RocksDBStateStoreProvider",
    "memory": f"{_STATE}.HDFSBackedStateStoreProvider",
}
# The setting for the class that writes Spark's streaming checkpoints.
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
# Settings only for a streaming checkpoint on a local disk; Spark chooses the class elsewhere.
LOCAL_ONLY = (FILE_MANAGER,)
_BARE_FILES = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
# Hadoop's defaults for YARN and MapReduce: most of the properties of a session.
_CLUSTER_DEFAULTS = ("yarn-default.xml", "mapred-default.xml")


def spark_settings(settings: Settings, location: str, delta: bool = False) -> dict[str, str]:
    """Return the settings of conf/spark-defaults.conf, [coordinator] and [spark]; the last wins.

    `location` is the folder of the streaming checkpoints, the only files that a coordinator's Spark
    session reads and writes. With `delta` the session can also read and write Delta tables. The
    packages of [spark] are added to those of this project, and are not excluded.
    """
    wanted = read_defaults() | (DELTA if delta else {})
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
    """Return the packages of both lists; an added release replaces that of the same package."""
    releases = {each.rpartition(":")[0]: each for each in [*ours, *added]}
    return list(releases.values())


def _without(excludes: str, asked: list[str]) -> str:
    names = [each.rpartition(":")[0] for each in asked]
    kept = [p for p in excludes.split(",") if not any(fnmatchcase(name, p) for name in names)]
    return ",".join(kept)


def packages(delta: bool = False) -> str:
    """Return the Maven coordinates of the jars that Spark loads, separated by commas.

    These are the file system that does not fork, and with `delta` Delta's jar, in the release of
    the installed `delta-spark`, for the installed Spark.
    """
    if not delta:
        return BARE_FILES
    spark = ".".join(pyspark.__version__.split(".")[:2])
    return f"io.delta:delta-spark_{spark}_{_SCALA}:{version('delta-spark')},{BARE_FILES}"


def read_defaults() -> dict[str, str]:
    """Read conf/spark-defaults.conf: lines with a key, blanks and a value; # starts a comment."""
    text = (
        resources.files("group_coordinator.conf").joinpath("spark-defaults.conf").read_text("utf-8")
    )
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            key, value = line.split(maxsplit=1)
            pairs[key] = value.strip()
    return pairs


def spare_forks(spark: SparkSession, packages: str) -> None:
    """Use a local file system that sets file modes without forking chmod.

    Hadoop's forks chmod for each file, and each batch creates files for the offset, the commit and
    the state changes. `com.globalmentor:hadoop-bare-naked-local-fs` sets the modes in the JVM. It
    is set in the session only, with Hadoop's file system cache disabled, because spark-submit opens
    local files before it loads the package. If the class is missing, a warning names `packages`.
    """
    if not has_class(spark, _BARE_FILES):
        log.warning("batches take 40 ms longer than necessary: start Spark with %s", packages)
        return
    spark.conf.set("fs.file.impl", _BARE_FILES)
    spark.conf.set("fs.file.impl.disable.cache", "true")


def keep_file_manager(spark: SparkSession) -> None:
    """Unset the checkpoint file manager, with a warning, if this Spark lacks its class.

    `conf/spark-defaults.conf` names a class in a private package of Spark, which has moved. A query
    with a missing class does not start.
    """
    manager = spark.conf.get(FILE_MANAGER, None)
    if manager is not None and not has_class(spark, manager):
        spark.conf.unset(FILE_MANAGER)
        log.warning("batches take 100 ms longer than necessary: this Spark has no %s", manager)


def forget_clusters(spark: SparkSession) -> None:
    """Unset the defaults of YARN and MapReduce in a session with a local master.

    Each batch sends all Hadoop properties to its tasks, for the state store, and slowly compresses
    the origin of each. Call this only for a session that is not used for anything else.
    """
    if not (spark.sparkContext.master or "").startswith("local"):
        return
    properties = hadoop_properties(spark)
    java = jvm(spark)
    writer = java.java.io.StringWriter()
    java.org.apache.hadoop.conf.Configuration.dumpConfiguration(properties, writer)
    for each in msgspec.json.decode(writer.toString())["properties"]:
        if each["resource"] in _CLUSTER_DEFAULTS:
            properties.unset(each["key"])
