"""Delta streams over tables of a root deliver each row once, whatever upkeep does meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.settings import DAY_MS
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.pipeline.upkeep.retention import LEAST_FILES, retain
from group_coordinator.schemas.tables import RESPONSES, to_arrow
from tests.pipeline.offsets_log import Log, commit, upkeep
from tests.pipeline.rows import response

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.full, pytest.mark.spark]

SKIPS = {"skipChangeCommits": "true"}


class Stream:
    """A stream over a table, which is stopped and started again for each read."""

    def __init__(self, spark: SparkSession, uri: str, checkpoint: Path, **options: str) -> None:
        self._rows = spark.readStream.format("delta").options(**options).load(uri)
        self._checkpoint = str(checkpoint)
        self.read: list[Any] = []

    def drain(self, *columns: str) -> list[Any]:
        """Read to the table's end; return all rows that were read so far."""

        def keep(batch: DataFrame, _: int) -> None:
            self.read += map(tuple, batch.select(*columns).collect())

        writer = self._rows.writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", self._checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(self.read)


def test_a_stream_over_the_offsets_topic_sees_each_record_once(
    light_spark: SparkSession, tmp_path: Path
) -> None:
    log = Log(str(tmp_path / "root"))
    place = ("partition", "log_offset")
    stream = Stream(light_spark, log.uri, tmp_path / "skips", **SKIPS)
    plain = Stream(light_spark, log.uri, tmp_path / "plain")
    for offset in range(3):
        log.append(commit("g", offset, offset))
    assert stream.drain(*place) == plain.drain(*place) == places(log)

    # Records that the stream has not read are superseded, and removed.
    for offset in range(3, 3 + LEAST_FILES):
        log.append(commit("g", offset, offset))
    log.roll()
    for offset in range(LEAST_FILES):
        log.append(commit("h", offset, offset))
    assert compact(log.root, upkeep(), clock_ms(), force=True).records_after == 1
    retain(log.root, upkeep(), clock_ms())
    assert len(log.read()) == 1 + LEAST_FILES
    assert stream.drain(*place) == places(log)
    with pytest.raises(StreamingQueryException, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
        plain.drain(*place)

    # The log, and the removed files, are gone up to the stream's last batch. A stream that starts
    # again reads the commits of its last batch once more.
    read_up_to = DeltaTable(log.uri).version() + 1
    log.append(commit("g", 50, 50))
    assert stream.drain(*place) == places(log)
    DeltaTable(log.uri).create_checkpoint()
    assert trim_log(log.uri, read_up_to, grace_s=0)
    now = DeltaTable(log.uri)
    assert now.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    log.append(commit("g", 99, 99))
    assert stream.drain(*place) == places(log)


def test_a_stream_over_responses_goes_on_after_retention(
    light_spark: SparkSession, root: str, tmp_path: Path
) -> None:
    uri = table_uri(root, RESPONSES)
    stream = Stream(light_spark, uri, tmp_path / "stream", **SKIPS)
    appender = Appender(uri)
    ids = [str(number) for number in range(10, 10 + LEAST_FILES)]
    for each in ids:
        appender.append(to_arrow(RESPONSES, [response(each)]))
    retain(root, upkeep(), clock_ms())
    assert stream.drain("request_id") == [(each,) for each in ids]
    retain(root, upkeep(), clock_ms() + 100 * DAY_MS)
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 0
    appender.append(to_arrow(RESPONSES, [response("99")]))
    assert stream.drain("request_id") == [(each,) for each in [*ids, "99"]]


def places(log: Log) -> list[tuple[int, int | None]]:
    return sorted((each.partition, each.log_offset) for each in log.records)
