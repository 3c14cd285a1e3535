"""What a session on a local disk does without of Hadoop, which every batch would pay for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_BARE_FILES = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
# What Hadoop takes for granted of its own clusters: 721 of a session's 1,103 properties.
_CLUSTER_DEFAULTS = ("yarn-default.xml", "mapred-default.xml")


def spare_forks(spark: SparkSession, packages: str) -> None:
    """Have Hadoop set the modes of local files by itself; warn if `packages` are not there.

    Its own local file system runs chmod for every file that it creates: 40 ms of a batch of 105,
    for the offset, the commit and the groups' changes. In the session alone, and past Hadoop's
    cache of file systems: spark-submit reads local files before it has the package.
    """
    if not has_class(spark, _BARE_FILES):
        log.warning("batches take 40 ms longer than they must: start Spark with %s", packages)
        return
    spark.conf.set("fs.file.impl", _BARE_FILES)
    spark.conf.set("fs.file.impl.disable.cache", "true")


def forget_clusters(spark: SparkSession) -> None:
    """Drop the defaults of YARN and MapReduce from a session that runs on this machine alone.

    Each batch hands all of Hadoop's properties to its tasks, for the state store, and compresses
    where each came from on its own: 5.5 ms of the 28 that a batch of the small load takes of its
    thread's CPU. To be called only for a session that serves nothing else.
    """
    if not spark.sparkContext.master.startswith("local"):
        return
    jvm = spark.sparkContext._jvm
    assert jvm is not None  # only Spark Connect has none
    properties = spark.sparkContext._jsc.hadoopConfiguration()
    writer = jvm.java.io.StringWriter()
    jvm.org.apache.hadoop.conf.Configuration.dumpConfiguration(properties, writer)
    for each in msgspec.json.decode(writer.toString())["properties"]:
        if each["resource"] in _CLUSTER_DEFAULTS:
            properties.unset(each["key"])


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether the driver's JVM finds a class."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None  # only Spark Connect has none
    loader = jvm.Thread.currentThread().getContextClassLoader()
    return loader.getResource(f"{name.replace('.', '/')}.class") is not None
