"""A streaming checkpoint as the files that Spark keeps of it, on a disk or where Hadoop reaches.

Which folders it has, and how a file of its offsets is written, Spark does not publish.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlparse

import msgspec
from msgspec import Struct
from py4j.protocol import Py4JError

from group_coordinator.pipeline.session.driver_jvm import hadoop_properties, jvm
from group_coordinator.schemas.unreadable import UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# Hadoop's file systems in which renaming a folder is one step; object stores copy each file.
_RENAMING_STORES = ("file", "hdfs")


class _Metadata(Struct):
    """What Spark's log of offsets says of a batch itself."""

    batchTimestampMs: int


class _Query(Struct):
    """What a streaming checkpoint says of its query."""

    id: str


def last_planned(spark: SparkSession, checkpoint: str) -> tuple[int, str] | None:
    """Return the last batch that a streaming checkpoint has planned, None if none was.

    That is its number, and where it ends, as JSON: what the query's one source gave.
    """
    files = _files(spark, f"{checkpoint}/offsets")
    latest = max((int(name) for name in files.names() if name.isdigit()), default=None)
    return None if latest is None else (latest, planned_offset(spark, checkpoint, latest))


def query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the id of the query that a streaming checkpoint is of; None if none can be read."""
    text = text_kept(spark, checkpoint, "metadata")
    try:
        return None if text is None else msgspec.json.decode(text, type=_Query).id
    except UNREADABLE:
        return None


def planned_offset(spark: SparkSession, checkpoint: str, batch_id: int) -> str:
    """Return where a batch that was planned ends, as JSON: what its one source gave."""
    return _planned(spark, checkpoint, batch_id)[-1]


def planned_ms(spark: SparkSession, checkpoint: str, batch_id: int) -> int:
    """Return the time of a batch that was planned, ms."""
    metadata = _planned(spark, checkpoint, batch_id)[1]
    return msgspec.json.decode(metadata, type=_Metadata).batchTimestampMs


def _planned(spark: SparkSession, checkpoint: str, batch_id: int) -> list[str]:
    """What Spark's log of offsets has of a batch: a version, metadata, and a line a source."""
    return _files(spark, f"{checkpoint}/offsets/{batch_id}").text().splitlines()


def text_kept(spark: SparkSession, checkpoint: str, name: str) -> str | None:
    """Return a text file of a streaming checkpoint; None if it has none."""
    if name not in _files(spark, checkpoint).names():
        return None
    return _files(spark, f"{checkpoint}/{name}").text()


def keep_text(spark: SparkSession, checkpoint: str, name: str, text: str) -> None:
    """Have a streaming checkpoint keep a text of ours. A store may keep a part of it, if killed.

    If that fails, it is in the log, and the streaming checkpoint keeps what it had.
    """
    try:
        _files(spark, f"{checkpoint}/{name}").write(text)
    except (OSError, Py4JError) as error:
        log.debug("%s is not kept in %s: %s", name, checkpoint, error)


def delete_checkpoint(spark: SparkSession, checkpoint: str) -> None:
    """Delete a streaming checkpoint or the folder of one, if it is there, and all that it holds.

    It is renamed first, where the store can: whoever finds it half deleted would take it for one
    that is older.
    """
    aside = f"{checkpoint}-deleted"
    move(spark, checkpoint, aside)
    # Also what an earlier deletion has left, and what could not be renamed.
    for uri in (aside, checkpoint):
        _files(spark, uri).delete()


def move(spark: SparkSession, folder: str, target: str) -> bool:
    """Rename a folder at once; False if it is not there, or if the store cannot.

    What is at the target is deleted.
    """
    return _files(spark, folder).rename(target)


class _Files(Protocol):
    """A file or folder of a streaming checkpoint."""

    def names(self) -> list[str]:
        """What a folder has; nothing if it is not there."""
        ...

    def text(self) -> str:
        """What a file says."""
        ...

    def write(self, text: str) -> None:
        """Have a file say this; its folder must be there. Raises OSError, Py4JError."""
        ...

    def delete(self) -> None:
        """Delete it, if it is there, with all that is in it."""
        ...

    def rename(self, target: str) -> bool:
        """Give a folder another name at once, and delete what has that name; False if it cannot."""
        ...


class _OnDisk:
    """Without the JVM, which a release of Spark may hide."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        return [each.name for each in self._path.iterdir()] if self._path.exists() else []

    def text(self) -> str:
        return self._path.read_text("utf-8")

    def write(self, text: str) -> None:
        made = self._path.with_name(f".{self._path.name}.new")
        made.write_text(text, "utf-8")
        made.replace(self._path)

    def delete(self) -> None:
        # An earlier start of the node may be writing into it.
        shutil.rmtree(self._path, ignore_errors=True)

    def rename(self, target: str) -> bool:
        there = _on_disk(target)
        if there is None or not self._path.exists():
            return False
        _OnDisk(there).delete()
        there.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._path.rename(there)
        except OSError:
            # Another disk; or an earlier start has made the target anew.
            return False
        return True


class _InHadoop:
    """On any store that Hadoop knows, in the driver's JVM."""

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
        # Hadoop would move the folder into one that is there.
        self._store.delete(there, True)
        self._store.mkdirs(there.getParent())
        return bool(self._store.rename(self._path, there))


def _files(spark: SparkSession, uri: str) -> _Files:
    path = _on_disk(uri)
    return _InHadoop(spark, uri) if path is None else _OnDisk(path)


def _on_disk(uri: str) -> Path | None:
    """The local path that Hadoop takes a URI for, None for another store's."""
    url = urlparse(uri)
    if url.scheme == "file":
        # Hadoop does not decode it: the checkpoint of `file:///a%20b` is in a folder of that name.
        return Path(url.path)
    return None if url.scheme else Path(uri)
