"""DESCRIBE HISTORY shows an operator what each commit of a root's tables did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import Epoch, raise_epoch
from group_coordinator.pipeline.settings import HOUR_MS, CoordinatorSettings
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.pipeline.upkeep.retention import LEAST_FILES, retain
from group_coordinator.schemas.tables import OFFSETS_TOPIC
from tests.pipeline.offsets_log import Log, commit, upkeep
from tests.pipeline.rows import commit_record, output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.full, pytest.mark.spark]


def test_spark_describes_what_each_commit_did(light_spark: SparkSession, tmp_path: Path) -> None:
    log = Log(str(tmp_path))
    raise_epoch(log.uri, Epoch(1, 1))
    Sink(log.root, CoordinatorSettings()).write([output(records=[commit_record(0, 1)])], "query", 7)
    log.segment = 1
    for offset in range(LEAST_FILES):
        log.append(commit("g", offset, offset))
    log.roll()
    log.append(commit("g", 9, 9))
    compact(log.root, upkeep(), clock_ms(), force=True)
    log.segment = 3
    for offset in range(LEAST_FILES):
        log.append(commit("g", offset, offset))
    retain(log.root, upkeep(vacuum_retention_ms=2 * HOUR_MS), clock_ms())
    table = f"delta.`{table_uri(log.root, OFFSETS_TOPIC)}`"
    rows = light_spark.sql(f"DESCRIBE HISTORY {table}").collect()
    found = {row.operation: row for row in rows}
    assert {"CREATE TABLE", "WRITE", "SET TBLPROPERTIES"} <= found.keys()
    assert found["Manual Update"].operationParameters == {"appIds": '["coordinator-epoch-1"]'}
    batch = found["STREAMING UPDATE"].operationParameters
    assert batch == {"outputMode": "Append", "queryId": "query", "epochId": "7"}
    cleaned = found["DELETE"]
    assert "superseded" in cleaned.operationParameters["predicate"]
    assert cleaned.operationMetrics["numDeletedRows"] == str(LEAST_FILES - 1)
    assert cleaned.operationMetrics["numCopiedRows"] == "2"
    packed = found["OPTIMIZE"]
    assert packed.operationParameters == {"predicate": "[]"}
    assert packed.operationMetrics["numRemovedFiles"] == str(LEAST_FILES)
