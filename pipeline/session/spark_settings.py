"""The settings of a session: conf/spark-defaults.conf, what [coordinator] decides, and [spark].

A coordinator's Spark knows nothing of Delta: Python reads and writes all tables
(`pipeline.stream.event_source`, `pipeline.stream.sink`), and Delta's jars would cost a start time,
and a machine without them the network. Who reads or writes Delta tables by Spark, as a benchmark's
floor does, asks for a session with `delta`.

The release of Delta stands in one place, pyproject's `delta-spark`; the jars are of the release
that is installed (`packages`). The package's own `configure_spark_with_delta_pip` names the same
jar but replaces the `spark.jars.packages` of its caller, and cannot tell a user of spark-submit
what to ask for. Its `DeltaTable` rewrites tables, which nothing here does through Spark.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING

import pyspark

from group_coordinator.pipeline.session.checkpoint_location import (
    is_local,
    store_packages,
    store_settings,
)
from group_coordinator.pipeline.session.hadoop import FILE_MANAGER
from group_coordinator.pipeline.session.jars import EXCLUDES, PACKAGES

if TYPE_CHECKING:
    from group_coordinator.pipeline.settings import Settings

_SCALA = "2.13"
# A small jar that spares a batch on a local disk its forks of chmod (`spare_forks`).
BARE_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
DELTA_CLASS = "io.delta.sql.DeltaSparkSessionExtension"
# The settings of a session that reads and writes Delta tables. The log of a small table is read in
# one task instead of fifty, which makes a small append faster.
# What a session needs besides Delta's jar to read its tables.
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
# Settings for a streaming checkpoint on a local disk: other stores have managers of their own.
LOCAL_ONLY = (FILE_MANAGER,)


def spark_settings(settings: Settings, location: str, delta: bool = False) -> dict[str, str]:
    """Return conf/spark-defaults.conf, what [coordinator] decides, and [spark] over both.

    `location` is that of the streaming checkpoint, which is all that a coordinator's Spark reads
    and writes; with `delta` it can also do so with Delta tables.
    What [spark] asks for in packages comes beside what this project needs, and is not excluded.
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
        return BARE_FILES
    spark = ".".join(pyspark.__version__.split(".")[:2])
    return f"io.delta:delta-spark_{spark}_{_SCALA}:{version('delta-spark')},{BARE_FILES}"


def read_defaults() -> dict[str, str]:
    """Read conf/spark-defaults.conf: a key, blanks and a value a line; # begins a comment."""
    text = (
        resources.files("group_coordinator.conf").joinpath("spark-defaults.conf").read_text("utf-8")
    )
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            key, value = line.split(maxsplit=1)
            pairs[key] = value.strip()
    return pairs
