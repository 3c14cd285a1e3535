"""Each of 10,000 requests from Spark is answered exactly once, whatever happens meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from group_coordinator import register_data_source
from tests.pipeline.spark.requests_under_load import (
    KILLS,
    check_answered,
    load,
    make_source,
    run_stream,
    write_batch,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3_600)]


def test_a_batch_is_answered_once_while_others_write(spark: SparkSession, root: str) -> None:
    register_data_source(spark)
    with load(root) as check:
        print(f"10,000 requests were written in {write_batch(spark, root):.1f} s")
        check_answered(root, check)


def test_a_stream_whose_driver_is_killed_ten_times_is_answered_once(
    root: str, tmp_path: Path
) -> None:
    make_source(tmp_path / "source")
    with load(root) as check:
        again = run_stream(tmp_path, root, KILLS, check)
        print(f"{again} of {KILLS} kills came between a commit and Spark's record of it")
        check_answered(root, check)
