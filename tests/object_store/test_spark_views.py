"""Spark computes the views of a root on S3, on a cluster and with the settings of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.views_on_cluster import check_views_on_cluster
from tests.object_store.proxy import Proxy
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.topics.logs import appender, batch, make

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("server", ["s3"], indirect=True)
def test_executors_read_a_root_on_s3(root: str, proxy: Proxy, tmp_path: Path) -> None:
    log = Log(root)
    appender(make(root)).append([batch(0, "a", "b", "c"), batch(2, "d")])
    log.append(commit("g", 1, 1_000), commit("h", 3, 1_000))
    log.roll()
    log.append(commit("g", 2, 2_000))
    asked = len(proxy.asked)
    counts = check_views_on_cluster(root, tmp_path)
    assert (counts["committed_offsets"], counts["offset_history"]) == (2, 3)
    assert any("offsets_topic" in each.key for each in proxy.asked[asked:])
