"""Hadoop settings that save time in each micro-batch, for checkpoints on a local disk."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from group_coordinator.pipeline.session.driver_jvm import hadoop_properties, has_class, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# The setting for the class that writes Spark's streaming checkpoints.
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_BARE_FILES = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
# Hadoop's defaults for YARN and MapReduce: most of the properties of a session.
_CLUSTER_DEFAULTS = ("yarn-default.xml", "mapred-default.xml")


def spare_forks(spark: SparkSession, packages: str) -> None:
    """Use a local file system that sets file modes without forking chmod.

    Hadoop's local file system forks chmod for each file that it creates. Each batch creates files
    for the offset, the commit and the state changes. `com.globalmentor:hadoop-bare-naked-local-fs`
    sets the modes in the JVM. It is set in the session only, with Hadoop's file system cache
    disabled, because spark-submit opens local files before it loads the package. If the class is
    missing, a warning names `packages`.
    """
    if not has_class(spark, _BARE_FILES):
        log.warning("batches take 40 ms longer than they must: start Spark with %s", packages)
        return
    spark.conf.set("fs.file.impl", _BARE_FILES)
    spark.conf.set("fs.file.impl.disable.cache", "true")


def keep_file_manager(spark: SparkSession) -> None:
    """Unset the checkpoint file manager, with a warning, if this Spark lacks its class.

    `conf/spark-defaults.conf` names a class in a private package of Spark. It has moved between
    packages, and a query with a missing class does not start.
    """
    manager = spark.conf.get(FILE_MANAGER, None)
    if manager is not None and not has_class(spark, manager):
        spark.conf.unset(FILE_MANAGER)
        log.warning("batches take 100 ms longer than they must: this Spark has no %s", manager)


def forget_clusters(spark: SparkSession) -> None:
    """Unset the defaults of YARN and MapReduce in a session with a local master.

    Each batch sends all Hadoop properties to its tasks, for the state store. The origin of each
    property is compressed separately, which is slow. Call this only for a session that is not used
    for anything else.
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
