"""A Spark job of the demo's: it writes a Delta table of orders, and appends more when told to.

    python -m group_coordinator.pipeline.replay.spark_orders TABLE ROWS

writes ROWS orders, tells so by a line on stdout, and appends as many for each line of its input.
It ends with its input.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import msgspec

from group_coordinator.pipeline.session.start import create_session
from group_coordinator.pipeline.settings import load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def append_orders(spark: SparkSession, table: str, first: int, count: int) -> None:
    """Append orders with the ids from `first` on."""
    orders = spark.range(first, first + count, 1, 1).selectExpr(
        "id", "concat('c', id % 100) AS customer", "id % 7 + 1 AS pieces"
    )
    orders.write.format("delta").mode("append").save(table)


def main(table: str, count: int) -> None:
    """Write orders until the input ends."""
    spark = create_session(load_settings(), table, master="local[1]", delta=True)
    first = 0
    while True:
        began = time.monotonic()
        append_orders(spark, table, first, count)
        first += count
        said = {"rows": count, "seconds": round(time.monotonic() - began, 1)}
        sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
        sys.stdout.flush()
        if not sys.stdin.readline():
            break
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
