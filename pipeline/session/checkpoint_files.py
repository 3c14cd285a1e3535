"""The files of a streaming checkpoint, on a local disk or in a store that Hadoop can reach.

The folder layout of a checkpoint and the format of its offset files are private to Spark.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import msgspec
from msgspec import Struct
from py4j.protocol import Py4JError

from group_coordinator.pipeline.session.driver_jvm import hadoop_properties, jvm
from group_coordinator.schemas.decoding import DECODE_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# Schemes of Hadoop file systems that rename a folder atomically; object stores copy each file.
_RENAMING_STORES = ("file", "hdfs")


class _Metadata(Struct):
    batchTimestampMs: int


class _Query(Struct):
    id: str


def last_planned(spark: SparkSession, checkpoint: str) -> tuple[int, str] | None:
    """Return the id and end offset of the last batch in Spark's offset log; None without one.

    The end offset is the JSON of the query's only source.
    """
    files = _files(spark, f"{checkpoint}/offsets")
    latest = max((int(name) for name in files.names() if name.isdigit()), default=None)
    return None if latest is None else (latest, planned_offset(spark, checkpoint, latest))


def query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the query id of a streaming checkpoint; None if it is missing or unreadable."""
    text = read_text_file(spark, checkpoint, "metadata")
    try:
        return None if text is None else msgspec.json.decode(text, type=_Query).id
    except DECODE_ERRORS:
        return None


def planned_offset(spark: SparkSession, checkpoint: str, batch_id: int) -> str:
    """Return a batch's end offset in Spark's offset log: the JSON of the query's only source."""
    return _planned(spark, checkpoint, batch_id)[-1]


def planned_ms(spark: SparkSession, checkpoint: str, batch_id: int) -> int:
    """Return the timestamp of a batch in Spark's offset log, ms since 1970."""
    metadata = _planned(spark, checkpoint, batch_id)[1]
    return msgspec.json.decode(metadata, type=_Metadata).batchTimestampMs


def _planned(spark: SparkSession, checkpoint: str, batch_id: int) -> list[str]:
    """Return a batch's file in the offset log: version, metadata, and a line for each source."""
    return _files(spark, f"{checkpoint}/offsets/{batch_id}").text().splitlines()


def read_text_file(spark: SparkSession, checkpoint: str, name: str) -> str | None:
    """Return the text file `name` of a streaming checkpoint; None if it does not exist."""
    if name not in _files(spark, checkpoint).names():
        return None
    return _files(spark, f"{checkpoint}/{name}").text()


def write_text_file(spark: SparkSession, checkpoint: str, name: str, text: str) -> None:
    """Write the text file `name` to a streaming checkpoint. A failure is only logged (debug).

    On a disk the old file stays until the new one is complete; in a store a crash can leave a
    partial file.
    """
    try:
        _files(spark, f"{checkpoint}/{name}").write(text)
    except (OSError, Py4JError) as error:
        log.debug("%s is not kept in %s: %s", name, checkpoint, error)


def delete_checkpoint(spark: SparkSession, checkpoint: str) -> None:
    """Delete a streaming checkpoint, or a folder that contains some, if it exists.

    If the store can rename, the folder is renamed first, so that no reader takes a partly deleted
    checkpoint for an older one.
    """
    aside = f"{checkpoint}-deleted"
    move(spark, checkpoint, aside)
    # Delete the rest of an interrupted deletion too, and a folder that could not be renamed.
    for uri in (aside, checkpoint):
        _files(spark, uri).delete()


def move(spark: SparkSession, folder: str, target: str) -> bool:
    """Rename a folder atomically, over an existing target.

    Return False if the folder does not exist or the store cannot rename atomically.
    """
    return _files(spark, folder).rename(target)


class _OnDisk:
    """Files on a local disk. They need no JVM, which a Spark release may hide."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        """Return the names of a folder's entries; an empty list if it does not exist."""
        return [each.name for each in self._path.iterdir()] if self._path.exists() else []

    def text(self) -> str:
        return self._path.read_text("utf-8")

    def write(self, text: str) -> None:
        """Replace a file's text. Its folder must exist. Raises OSError and Py4JError."""
        made = self._path.with_name(f".{self._path.name}.new")
        made.write_text(text, "utf-8")
        made.replace(self._path)

    def delete(self) -> None:
        # Ignore errors, because an earlier start of the node may still write into the folder.
        shutil.rmtree(self._path, ignore_errors=True)

    def rename(self, target: str) -> bool:
        """Delete `target` and rename the folder to it atomically; return False if it cannot."""
        there = _on_disk(target)
        if there is None or not self._path.exists():
            return False
        _OnDisk(there).delete()
        there.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._path.rename(there)
        except OSError:
            # The target is on another disk, or an earlier start has created it again.
            return False
        return True


class _InHadoop:
    """Files in any store that Hadoop supports, through the driver's JVM."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._spark = spark
        self._path: Any = jvm(spark).org.apache.hadoop.fs.Path(uri)
        self._store: Any = self._path.getFileSystem(hadoop_properties(spark))

    def names(self) -> list[str]:
        if not self._store.exists(self._path):
            return []
        return [str(each.getPath().getName()) for each in self._store.listStatus(self._path)]

    def text(self) -> str:
        stream = self._store.open(self._path)
        try:
            return str(jvm(self._spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, text: str) -> None:
        if not self._store.exists(self._path.getParent()):
            raise FileNotFoundError(f"{self._path.getParent()} is gone")
        stream = self._store.create(self._path, True)
        try:
            stream.write(bytearray(text, "utf-8"))
        finally:
            stream.close()

    def delete(self) -> None:
        self._store.delete(self._path, True)

    def rename(self, target: str) -> bool:
        if self._store.getScheme() not in _RENAMING_STORES or not self._store.exists(self._path):
            return False
        there = jvm(self._spark).org.apache.hadoop.fs.Path(target)
        # Hadoop would move the folder into an existing target.
        self._store.delete(there, True)
        self._store.mkdirs(there.getParent())
        return bool(self._store.rename(self._path, there))


def _files(spark: SparkSession, uri: str) -> _OnDisk | _InHadoop:
    path = _on_disk(uri)
    return _InHadoop(spark, uri) if path is None else _OnDisk(path)


def _on_disk(uri: str) -> Path | None:
    """Return the local path of a URI as Hadoop resolves it; None for other stores."""
    url = urlparse(uri)
    if url.scheme == "file":
        # Hadoop does not decode percent escapes: `file:///a%20b` is a folder named `a%20b`.
        return Path(url.path)
    return None if url.scheme else Path(uri)
