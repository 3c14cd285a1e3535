"""Spark computes a root's views on a standalone cluster with executors without this project."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.views_on_cluster import check_views_on_cluster
from tests.pipeline.spark.whole_root import make_whole_root

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]


def test_a_job_on_two_executors_is_told_what_duckdb_tells(tmp_path: Path) -> None:
    data, cluster = tmp_path / "data", tmp_path / "cluster"
    data.mkdir()
    cluster.mkdir()
    root, _ = make_whole_root(data)
    counts = check_views_on_cluster(root, cluster)
    assert min(counts.values()) > 0
