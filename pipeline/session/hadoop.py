"""What Hadoop does in every micro-batch and a root on a local disk does not need."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from group_coordinator.pipeline.session.driver_jvm import hadoop_properties, has_class, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# The setting that names the class by which Spark writes its checkpoint.
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_BARE_FILES = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
# Hadoop's settings for clusters of its own: most of a session's properties.
_CLUSTER_DEFAULTS = ("yarn-default.xml", "mapred-default.xml")


def spare_forks(spark: SparkSession, packages: str) -> None:
    """Have Hadoop set the modes of local files without chmod; warn if `packages` are missing.

    Hadoop's local file system forks chmod for every file that it creates: in each batch for the
    offset, the commit and the state changes. `com.globalmentor:hadoop-bare-naked-local-fs` calls
    the JVM instead. It is set in the session alone, and without Hadoop's cache of file systems,
    because spark-submit opens local files before it has loaded the package.
    """
    if not has_class(spark, _BARE_FILES):
        log.warning("batches take 40 ms longer than they must: start Spark with %s", packages)
        return
    spark.conf.set("fs.file.impl", _BARE_FILES)
    spark.conf.set("fs.file.impl.disable.cache", "true")


def keep_file_manager(spark: SparkSession) -> None:
    """Have Spark choose how it writes its checkpoint, if it lacks the class that it is told of.

    The class, of `conf/spark-defaults.conf`, is in a package that Spark does not publish, and has
    moved from one to another: a query that cannot find it does not begin.
    """
    manager = spark.conf.get(FILE_MANAGER, None)
    if manager is not None and not has_class(spark, manager):
        spark.conf.unset(FILE_MANAGER)
        log.warning("batches take 100 ms longer than they must: this Spark has no %s", manager)


def forget_clusters(spark: SparkSession) -> None:
    """Drop the defaults of YARN and MapReduce from a session that runs on this machine alone.

    Each batch hands all of Hadoop's properties to its tasks, for the state store, and compresses
    the origin of each property separately, which is slow. Call this only for a session that serves
    nothing else.
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
