"""The floor that a take-over is measured against: Spark reads and groups the same rows.

python -m tests.bench.take_over_floor --root ROOT --config FILE

Prints `ready` when it has grouped the rows, and waits to be stopped, as a coordinator does.
"""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from group_coordinator.pipeline.interrupt import SignalEvent
from group_coordinator.pipeline.session.start import SessionStart
from group_coordinator.pipeline.settings import load_settings
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.records import RECORD_KEY
from group_coordinator.schemas.tables import OFFSETS_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MODULE = "tests.bench.take_over_floor"


def newest_by_group(records: DataFrame) -> DataFrame:
    """Return a row for each group with the newest record of each key: no JSON, no state."""
    value = F.struct("*")
    newest = records.groupBy(*RECORD_KEY).agg(F.max_by(value, F.col("log_offset")).alias("record"))
    alive = newest.where("record.offset_commit is not null or record.group_metadata is not null")
    return alive.groupBy("group_id").agg(F.collect_list("record").alias("records"))


def main() -> int:
    """Start Spark with a coordinator's settings, read and group, and wait for SIGTERM."""
    parser = argparse.ArgumentParser(prog=MODULE)
    parser.add_argument("--root", required=True)
    parser.add_argument("--config")
    options = parser.parse_args()
    stop = SignalEvent()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    spark = SessionStart(load_settings(options.config), options.root, delta=True).finish()
    try:
        records = spark.read.format("delta").load(table_uri(options.root, OFFSETS_TOPIC))
        newest_by_group(records).write.format("noop").mode("overwrite").save()
        print("ready", flush=True)
        stop.wait()
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
