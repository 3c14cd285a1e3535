"""The Spark data source `group_coordinator`: it writes requests, and reads topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from group_coordinator.pipeline.delta import absolute_uri
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.settings import CoordinatorSettings, SettingsError
from group_coordinator.pipeline.spark.request_rows import check_columns
from group_coordinator.pipeline.spark.request_writer import (
    RequestStreamWriter,
    RequestWriter,
    WriteOptions,
)
from group_coordinator.pipeline.spark.topic_reader import (
    READ_SCHEMA,
    TopicBatchReader,
    TopicStreamReader,
    read_options,
)
from group_coordinator.pipeline.spark.workers import register_source
from group_coordinator.pipeline.tables import ensure_table, has_root
from group_coordinator.schemas.tables import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "group_coordinator"


class UnsupportedMode(Failure):
    """A write that would replace requests: only appends are possible."""


def register_data_source(spark: SparkSession) -> None:
    """Register the format `group_coordinator` in a session.

    `df.write.format("group_coordinator")` and `df.writeStream` then write requests to the root that
    the option `root` names. `spark.read` and `spark.readStream` read the records of its topic
    `topic`. README.md of this package has the options and columns. The driver and the executors
    must reach the root, and their Python must have this package.
    """
    register_source(spark, GroupCoordinatorDataSource)


class GroupCoordinatorDataSource(DataSource):
    """The data source that Spark registers."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of a topic's records."""
        return READ_SCHEMA

    def reader(self, schema: StructType) -> TopicBatchReader:
        """Return the reader of a DataFrame. Raises InvalidReadOption."""
        return TopicBatchReader(read_options(self.options, schema, is_stream=False))

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        """Return the reader of a stream. Raises InvalidReadOption."""
        return TopicStreamReader(read_options(self.options, schema, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> RequestWriter:
        """Return the writer of a DataFrame. Raises the errors of `plan_write`."""
        return RequestWriter(plan_write(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RequestStreamWriter:
        """Return the writer of a stream's batches. Raises the errors of `plan_write`."""
        if not self.options.get("txnAppId"):
            raise SettingsError(
                "a stream needs the option txnAppId: a name of this query, which is the same after "
                "each restart with its streaming checkpoint"
            )
        return RequestStreamWriter(plan_write(self.options, schema, overwrite))


def plan_write(options: Mapping[str, str], schema: StructType, overwrite: bool) -> WriteOptions:
    """Check a write before its tasks start, and return its options.

    Raises UnsupportedMode, SettingsError and InvalidRequest. Raises SchemaMismatch and
    LaterRelease for a table that this release cannot use.
    """
    if overwrite:
        raise UnsupportedMode(
            "requests are only appended: use mode('append'), or for a stream outputMode('append')"
        )
    root = options.get("root")
    if not root:
        raise SettingsError("the option root is missing: the folder or URI of the tables")
    root = absolute_uri(root)
    prefix = options.get("requestIdPrefix")
    check_columns(schema, has_prefix=prefix is not None)
    if not has_root(root):
        raise SettingsError(
            f"the option root: {root} does not exist; start a coordinator with `run --root {root}`"
        )
    ensure_table(root, REQUESTS)
    return WriteOptions(
        root,
        prefix,
        _largest_request(options),
        options.get("principal"),
        options.get("requestKeyFile", ""),
        options.get("txnAppId", ""),
    )


def _largest_request(options: Mapping[str, str]) -> int:
    text = options.get("maxRequestSize")
    if text is None:
        return CoordinatorSettings().max_request_size
    if not text.isdecimal():
        raise SettingsError(f"the option maxRequestSize is {text!r}, and not a number of bytes")
    return int(text)
