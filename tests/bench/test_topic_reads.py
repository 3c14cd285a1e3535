"""Tests of the benchmark of topics in Spark: all records are written, and lost ones fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_coordinator import Consumer
from tests.bench.topic_reads import PARTITIONS, ReadRate, TopicReadsReport, make_topic

pytestmark = pytest.mark.full


def test_the_topic_has_all_records(tmp_path: Path) -> None:
    table = make_topic(str(tmp_path), 60_000)
    assert Path(table).is_dir()
    with Consumer(str(tmp_path)) as consumer:
        partitions = consumer.partitions_for("clicks")
        assert len(partitions) == PARTITIONS
        assert sum(consumer.end_offsets(partitions).values()) == 60_000


def test_the_ratio_is_that_of_the_rates() -> None:
    rates = [ReadRate("delta", 1.0, 100.0, 3.0), ReadRate("group_coordinator", 2.0, 50.0, 6.0)]
    report = TopicReadsReport(100, PARTITIONS, rates)
    assert report.table().rows[-1] == ["group_coordinator / delta", "", "0.50", "2.00"]
