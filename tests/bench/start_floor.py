"""The floor that a start is measured against: Spark as it comes, and one stateful Python batch.

    python -m tests.bench.start_floor --root ROOT

Prints `ready` when the batch, which has no data, has ended, and waits to be stopped, as a
coordinator does. Neither a setting nor a module of the project's is in it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd
    from pyspark.sql import DataFrame

MODULE = "tests.bench.start_floor"


def _nothing(_key: Any, frames: Iterable[pd.DataFrame], _state: Any) -> Iterator[pd.DataFrame]:
    yield from frames


def _collect(frame: DataFrame, _batch_id: int) -> None:
    frame.collect()


def main() -> int:
    """Start Spark, run the batch, and wait for SIGTERM."""
    parser = argparse.ArgumentParser(prog=MODULE)
    parser.add_argument("--root", required=True)
    parser.parse_args()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    spark = SparkSession.builder.master("local[*]").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        query = (
            spark.readStream.schema("key string")
            .json(str(source))
            .groupBy("key")
            .applyInPandasWithState(
                _nothing,
                "key string",
                "count long",
                "append",
                GroupStateTimeout.ProcessingTimeTimeout,
            )
            .writeStream.foreachBatch(_collect)
            .option("checkpointLocation", str(Path(folder) / "checkpoint"))
            .start()
        )
        try:
            while query.lastProgress is None and query.isActive and not stop.wait(0.02):
                pass
            print("ready", flush=True)
            stop.wait()
        finally:
            query.stop()
            spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
