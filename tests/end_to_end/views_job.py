"""A user's job: Spark on a cluster reads a root's views. A program for spark-submit.

    spark-submit ... views_job.py ROOT FILE

It writes the numbers of rows of the views, and some rows, to FILE as JSON. Its imports are a
user's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from group_coordinator import register_views

# `lag` needs columns that executors compute in Python, `group_members` bytes from clients.
ROWS = {
    "lag": "SELECT topic, partition, committed_offset, log_end_offset, lag FROM {}lag",
    "committed_offsets": "SELECT group_id, topic, committed_offset FROM {}committed_offsets",
    "group_members": "SELECT group_id, member_id, client_id FROM {}group_members",
}
AS_OF = "SELECT count(*) FROM {}offsets_as_of(TIMESTAMP '2100-01-01 00:00:00+00')"


def main(root: str, told: str) -> None:
    """Query all views."""
    spark = SparkSession.builder.getOrCreate()
    counts = {}
    for name in register_views(spark, root, "of_"):
        counts[name.removeprefix("of_")] = spark.table(name).count()
    rows = {name: _sorted(spark, query) for name, query in ROWS.items()}
    (as_of,) = spark.sql(AS_OF.format("of_")).collect()[0]
    hosts = spark.sparkContext.getConf().get("spark.master")
    Path(told).write_text(json.dumps({"counts": counts, "rows": rows, "as_of": as_of, "at": hosts}))
    spark.stop()


def _sorted(spark: SparkSession, query: str) -> list[list[object]]:
    return sorted((list(row) for row in spark.sql(query.format("of_")).collect()), key=repr)


if __name__ == "__main__":
    main(*sys.argv[1:])
