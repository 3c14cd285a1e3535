"""What reading costs the nodes of a root: each is measured with its own partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from group_coordinator.pipeline.bench import reading
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.stream.event_source import EventReader
from group_coordinator.pipeline.stream.offset import Selection
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.schemas.tables import REQUESTS
from tests.pipeline.rows import heartbeat


def test_each_commit_from_a_version_on_is_read_by_itself(root: str, monkeypatch: Any) -> None:
    log = RequestLog(root)
    for number in range(4):
        log.append([heartbeat(f"{number}", "g0"), heartbeat(f"{number} too", "g1")])
    batches: list[int] = []
    whole = EventReader.read

    def read(self: EventReader, start: dict[str, Any]) -> Any:
        found, end = whole(self, start)
        rows = sum(batch.num_rows for batch in found)
        batches.append(rows)
        return iter(()), end

    monkeypatch.setattr(EventReader, "read", read)
    assert reading.reading_s(root, Selection(), 3) > 0
    assert [each for each in batches if each] == [2, 2]
    batches.clear()
    assert reading.reading_s(root, Selection((0, 1), 50), 1) > 0
    assert not any(batches)


def test_commits_that_upkeep_has_trimmed_from_the_log_do_not_count_as_read(root: str) -> None:
    log = RequestLog(root)
    for number in range(3):
        log.append([heartbeat(f"{number}", "g0")])
    open_table(root, REQUESTS).create_checkpoint()
    assert trim_log(Path(root) / "requests", consumed=3, grace_s=0.0) > 0
    with pytest.raises(Failure, match=r"no commit of .* can be read from version 1 on"):
        reading.reading_s(root, Selection(), 1)


def test_four_nodes_are_measured_beside_one() -> None:
    said: list[str] = []
    report = reading.bench_reading(said.append, shapes=((2, 1), (4, 30)), requests=8, rounds=1)
    assert [(each.rows, each.groups, each.commits) for each in report.figures] == [
        (2, 1, 4),
        (4, 30, 2),
    ]
    assert len(said) == 2
    for each in report.figures:
        assert each.ranges_times == each.ranges_us / each.one_us > 0
        assert each.scattered_times == each.scattered_us / each.one_us > 0
