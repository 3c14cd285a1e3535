"""A streaming checkpoint as the files that Spark keeps of it, on any store that Hadoop knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.session.spark_internals import hadoop_properties, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Hadoop's file systems in which renaming a folder is one step; object stores copy each file.
_RENAMING_STORES = ("file", "hdfs")


def last_planned(spark: SparkSession, checkpoint: str) -> tuple[int, str] | None:
    """Return the last batch that a streaming checkpoint has planned, None if none was.

    That is its number, and where it ends, as JSON: what the query's one source gave.
    """
    path, files = _hadoop(spark, f"{checkpoint}/offsets")
    if not files.exists(path):
        return None
    batches = [status.getPath() for status in files.listStatus(path)]
    latest = max(
        (batch for batch in batches if batch.getName().isdigit()),
        key=lambda batch: int(batch.getName()),
        default=None,
    )
    if latest is None:
        return None
    return int(latest.getName()), _offset(spark, files, latest)


def planned_offset(spark: SparkSession, checkpoint: str, batch_id: int) -> str:
    """Return where a batch that was planned ends, as JSON: what its one source gave."""
    path, files = _hadoop(spark, f"{checkpoint}/offsets/{batch_id}")
    return _offset(spark, files, path)


def _offset(spark: SparkSession, files: Any, path: Any) -> str:
    stream = files.open(path)
    try:
        # A version, the batch's metadata, and a line for each source.
        text = jvm(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    return str(text).splitlines()[-1]


def delete_checkpoint(spark: SparkSession, checkpoint: str) -> None:
    """Delete a streaming checkpoint or the folder of one, if it is there, and all that it holds.

    It is renamed first, where the store can: whoever finds it half deleted would take it for one
    that is older.
    """
    aside = f"{checkpoint}-deleted"
    move(spark, checkpoint, aside)
    # Also what an earlier deletion has left, and what could not be renamed.
    for uri in (aside, checkpoint):
        path, files = _hadoop(spark, uri)
        files.delete(path, True)


def move(spark: SparkSession, folder: str, target: str) -> bool:
    """Rename a folder at once; False if it is not there, or if the store cannot.

    What is at the target is deleted.
    """
    path, files = _hadoop(spark, folder)
    there, _ = _hadoop(spark, target)
    if files.getScheme() not in _RENAMING_STORES or not files.exists(path):
        return False
    # Hadoop would move the folder into one that is there.
    files.delete(there, True)
    files.mkdirs(there.getParent())
    return bool(files.rename(path, there))


def _hadoop(spark: SparkSession, uri: str) -> tuple[Any, Any]:
    """A path as Hadoop has it, and the file system it is on."""
    path = jvm(spark).org.apache.hadoop.fs.Path(uri)
    return path, path.getFileSystem(hadoop_properties(spark))
