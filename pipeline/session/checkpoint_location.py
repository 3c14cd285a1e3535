"""Where the streaming checkpoints of a root's nodes lie, and what Spark needs to reach them.

Spark writes some ten small files to its checkpoint in every batch, also in one without requests. In
an object store each of them is several requests, and none of them is worth one: a streaming
checkpoint that is lost costs a node a start from the tables, and nothing else. So for a root in a
store the checkpoints are on a disk of the machine, as long as Spark runs on that machine alone, and
then Spark needs no jars of the store's either: only Python touches the tables.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlparse

import pyspark

from group_coordinator.pipeline.user_folders import state_folder

if TYPE_CHECKING:
    from group_coordinator.pipeline.settings import Settings

LOCAL_SCHEMES = ("", "file")


class _Store(NamedTuple):
    """What Hadoop needs for a scheme, beside what Spark has: a Maven package, and a class of it."""

    package: str
    file_system: str


_AZURE = _Store(
    "org.apache.hadoop:hadoop-azure:{hadoop}", "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem"
)
# Hadoop's own jars are of the release that Spark has.
_STORES = {
    "s3a": _Store(
        "org.apache.hadoop:hadoop-aws:{hadoop}", "org.apache.hadoop.fs.s3a.S3AFileSystem"
    ),
    "abfs": _AZURE,
    "abfss": _AZURE,
    "gs": _Store(
        "com.google.cloud.bigdataoss:gcs-connector:3.1.7",
        "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    ),
}
_HADOOP_JAR = re.compile(r"hadoop-client-api-(.+)\.jar")


def checkpoint_location(settings: Settings, root: str, master: str) -> str:
    """Return the folder or URI under which the streaming checkpoints of the root's nodes lie.

    `checkpoint.location` below a name made of the root's, so that roots may share it; without it a
    folder beside the tables, or on a disk of this machine if those are in a store and Spark's
    `master` is this machine.
    """
    given = settings.coordinator.checkpoint_location
    mine = hashlib.sha256(root.rstrip("/").encode()).hexdigest()[:16]
    if given:
        return f"{_in_hadoop(given).rstrip('/')}/{mine}"
    if is_local(root) or not master.startswith("local"):
        return f"{_in_hadoop(root).rstrip('/')}/_checkpoints"
    return str(state_folder() / mine)


def hadoop_uri(uri: str) -> str:
    """Return a URI for Hadoop: S3 is `s3a` there, and a path alone is one of `fs.defaultFS`.

    Here such a path is a folder of the machine, for Python's tables and so for Spark as well. On a
    cluster `fs.defaultFS` is mostly an HDFS.
    """
    return _in_hadoop(uri) if urlparse(uri).scheme else f"file://{os.path.abspath(uri)}"


def is_local(uri: str) -> bool:
    """Return whether the URI is a folder of this machine."""
    return urlparse(uri).scheme in LOCAL_SCHEMES


def store_packages(location: str) -> list[str]:
    """Return the Maven coordinates that Hadoop needs to reach a URI; none for a folder."""
    store = _store_of(location)
    return [] if store is None else [store.package.format(hadoop=_hadoop_version())]


def store_class(location: str) -> str | None:
    """Return the Java class by which Hadoop reaches a URI, None if Spark has it or nobody knows."""
    store = _store_of(location)
    return None if store is None else store.file_system


def store_settings(location: str) -> dict[str, str]:
    """Return what tells Hadoop of an S3 server that the environment names; empty for other URIs.

    Python's clients of the tables read `AWS_ENDPOINT_URL` themselves. Hadoop does not: it would
    ask Amazon's servers for the checkpoint.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if urlparse(location).scheme != "s3a" or endpoint is None:
        return {}
    hadoop = {
        "endpoint": endpoint,
        "endpoint.region": os.environ.get("AWS_REGION"),
        # A server elsewhere has no name of its own for each bucket.
        "path.style.access": "true",
    }
    return {f"spark.hadoop.fs.s3a.{key}": text for key, text in hadoop.items() if text}


def _store_of(uri: str) -> _Store | None:
    return _STORES.get(urlparse(_in_hadoop(uri)).scheme)


def _in_hadoop(uri: str) -> str:
    """The URI as Hadoop has it: S3 is `s3a` there."""
    return f"s3a://{uri.removeprefix('s3://')}" if uri.startswith("s3://") else uri


def _hadoop_version() -> str:
    """The release of the Hadoop that the installed Spark has."""
    # Under spark-submit pyspark is an archive, and the jars are elsewhere.
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    found = [match[1] for path in jars.iterdir() if (match := _HADOOP_JAR.fullmatch(path.name))]
    return max(found, default="3.5.0")
