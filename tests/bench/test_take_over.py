"""The benchmark of a take-over: a log as coordinators write it, and every group comes back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.tables.store import ensure_tables, open_table
from group_coordinator.schemas.tables import OFFSETS_TOPIC
from tests.bench import take_over
from tests.bench.answered_log import write_answered
from tests.bench.memory import Memory
from tests.bench.offsets_log import MEMBERS, group_names, write_log
from tests.bench.take_over import bench_take_over

RECORDS, GROUPS = 2_000, 20
NOW = 1_800_000_000_000


def test_the_log_has_superseded_commits_tombstones_and_stable_groups(tmp_path: Path) -> None:
    root = str(tmp_path)
    ensure_tables(root)
    offsets = write_log(root, RECORDS, GROUPS, NOW)
    rows = open_table(root, OFFSETS_TOPIC).to_pyarrow_table().to_pylist()
    assert sorted(row["log_offset"] for row in rows) == list(range(RECORDS))
    types = Counter(row["record_type"] for row in rows)
    assert types == {"offset_commit": RECORDS - GROUPS, "group_metadata": GROUPS}
    commits = [row for row in rows if row["record_type"] == "offset_commit"]
    keys = {(row["group_id"], row["topic"], row["topic_partition"]) for row in commits}
    assert len(keys) == len(commits) * 7 // 10
    assert sum(row["offset_commit"] is None for row in commits) == len(commits) // 20
    assert offsets < len(keys)
    catalog = Catalog(root)
    assert catalog.query("SELECT count(*) FROM committed_offsets").rows == [(offsets,)]
    states = catalog.query("SELECT state, num_members, count(*) FROM groups GROUP BY ALL").rows
    assert states == [("Stable", MEMBERS, GROUPS)]


def test_fewer_than_two_records_a_group_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="39 records are too few for 20 groups"):
        write_log(str(tmp_path), 39, GROUPS, NOW)


def test_each_request_of_the_log_was_answered(tmp_path: Path) -> None:
    root = str(tmp_path)
    write_answered(root, 50, group_names(GROUPS), NOW)
    catalog = Catalog(root)
    sql = "SELECT count(*), count(DISTINCT group_id), max(epoch_ms(responded_at)) FROM requests"
    assert catalog.query(f"{sql} JOIN responses USING (request_id, group_id)").rows == [
        (50, GROUPS, NOW - 1)
    ]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_every_group_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    start = take_over._start

    def start_with_rows(module: str, root: Path, log: Path) -> tuple[float, Memory]:
        # A start with no rows is like one with rows, and is only measured.
        return (0.0, Memory(0, 0, 0)) if root.name == "empty" else start(module, root, log)

    monkeypatch.setattr(take_over, "_start", start_with_rows)
    said: list[str] = []
    figures = bench_take_over(RECORDS, GROUPS, 1_000, said.append)
    assert figures.groups_loaded == GROUPS == len(group_names(GROUPS))
    assert (figures.records, figures.groups, figures.requests) == (RECORDS, GROUPS, 1_000)
    assert said[0] == "making a log of 2,000 records of 20 groups"
    assert figures.ratio > 0
