"""A job of a user whose stream writes requests from files; arguments: source, root, checkpoint."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from group_coordinator import register_data_source

ROWS = "request_id string, group_id string, api string, body string"


def main(source: str, root: str, checkpoint: str) -> None:
    """Write all that the source has, file by file, and end."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    register_data_source(spark)
    rows = spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1).json(source)
    stream = rows.writeStream.format("group_coordinator").option("root", root)
    stream = stream.option("txnAppId", "job").option("checkpointLocation", checkpoint)
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
