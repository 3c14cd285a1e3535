"""The location of the streaming checkpoints of a root, and Spark's settings to reach it.

If a root is in an object store and Spark runs on one machine, the checkpoints are on a local disk.
Spark writes about ten small files to its checkpoint in every micro-batch, even without requests,
and in a store each takes several requests. A lost checkpoint only means that the node starts from
the tables. With a local checkpoint, Spark also needs no jars for the store, because only Python
reads and writes the tables.
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
    """The Maven package that Hadoop needs for a URI scheme, and its file system class."""

    package: str
    file_system: str


_AZURE = _Store(
    "org.apache.hadoop:hadoop-azure:{hadoop}", "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem"
)
# The version of Hadoop's own packages is that of the Hadoop in Spark.
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
    """Return the folder or URI that contains the streaming checkpoints of the root's nodes.

    With `checkpoint.location` it is a folder in that location, named by a hash of the root, so that
    roots can share it. Otherwise it is `_checkpoints` in the root, or a folder of the user on this
    machine if the root is in a store and Spark's `master` is local.
    """
    given = settings.coordinator.checkpoint_location
    mine = hashlib.sha256(root.rstrip("/").encode()).hexdigest()[:16]
    if given:
        return f"{_in_hadoop(given).rstrip('/')}/{mine}"
    if is_local(root) or not master.startswith("local"):
        return f"{_in_hadoop(root).rstrip('/')}/_checkpoints"
    return str(state_folder() / mine)


def hadoop_uri(uri: str) -> str:
    """Return the URI in the form that Hadoop expects: `s3a://` for S3, `file://` for a path.

    Hadoop would resolve a path without a scheme against `fs.defaultFS`, often HDFS. Python's tables
    read it as a local folder.
    """
    return _in_hadoop(uri) if urlparse(uri).scheme else f"file://{os.path.abspath(uri)}"


def is_local(uri: str) -> bool:
    """Return whether the URI is a folder of this machine."""
    return urlparse(uri).scheme in LOCAL_SCHEMES


def store_packages(location: str) -> list[str]:
    """Return the Maven coordinates that Hadoop needs for a URI; an empty list for a folder."""
    store = _store_of(location)
    return [] if store is None else [store.package.format(hadoop=_hadoop_version())]


def store_class(location: str) -> str | None:
    """Return the file system class of a URI; None if Spark includes it or it is not known."""
    store = _store_of(location)
    return None if store is None else store.file_system


def store_settings(location: str) -> dict[str, str]:
    """Return Hadoop's settings for the S3 endpoint in `AWS_ENDPOINT_URL`; empty for other URIs.

    Python's S3 clients read that variable themselves. Hadoop would send the requests to AWS.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if urlparse(location).scheme != "s3a" or endpoint is None:
        return {}
    hadoop = {
        "endpoint": endpoint,
        "endpoint.region": os.environ.get("AWS_REGION"),
        # Servers other than AWS often have no DNS name for each bucket.
        "path.style.access": "true",
    }
    return {f"spark.hadoop.fs.s3a.{key}": text for key, text in hadoop.items() if text}


def _store_of(uri: str) -> _Store | None:
    return _STORES.get(urlparse(_in_hadoop(uri)).scheme)


def _in_hadoop(uri: str) -> str:
    """Return the URI with the scheme `s3a` instead of `s3`."""
    return f"s3a://{uri.removeprefix('s3://')}" if uri.startswith("s3://") else uri


def _hadoop_version() -> str:
    """Return the version of the Hadoop that the installed Spark contains."""
    # Under spark-submit pyspark can be a zip archive, and the jars are in SPARK_HOME.
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    found = [match[1] for path in jars.iterdir() if (match := _HADOOP_JAR.fullmatch(path.name))]
    return max(found, default="3.5.0")
