"""For any history and times of compaction: the same groups are loaded, with the same past.

A history has offset commits, group records and tombstones of both, in several groups and offsets
partitions. It is cut into segments anywhere and compacted at any times. Clocks jump past
delete.retention.ms and the history's retention. Then

* each group that is loaded from the topic equals the group of its whole log;
* with a history, the offsets as of any time within its retention are those of the whole log;
* without one, it is empty.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from group_coordinator.coordinator.group.record_helpers import group_value, replay
from group_coordinator.pipeline.settings import DAY_MS, HOUR_MS
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.schemas.records import OFFSET_COMMIT, CoordinatorRecord
from tests.examples import examples
from tests.pipeline.offsets_log import Log, commit, stored, upkeep

FIXED = examples(12, suppress_health_check=[HealthCheck.too_slow])
START = 1_700_000_000_000
GROUPS = ("a", "bb", "ccc", "dddd")

GROUP = st.sampled_from(GROUPS)
WHERE = st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 1))
OFFSET = st.one_of(st.integers(0, 9), st.integers(0, 9), st.none())
GENERATION = st.one_of(st.integers(1, 5), st.none())
WRITE = st.one_of(
    st.tuples(st.just("commit"), GROUP, OFFSET, WHERE),
    st.tuples(st.just("stored"), GROUP, GENERATION),
)
STEP = st.one_of(
    WRITE,
    WRITE,
    WRITE,
    st.tuples(st.just("roll")),
    st.tuples(st.just("wait"), st.sampled_from([1, HOUR_MS, 30 * HOUR_MS, 3 * DAY_MS])),
    st.tuples(st.just("compact"), st.sampled_from([0.0, 0.5])),
)


@pytest.mark.slow
@FIXED
@given(
    steps=st.lists(STEP, min_size=5, max_size=40),
    retention=st.sampled_from([0, HOUR_MS, 7 * DAY_MS]),
)
def test_a_compacted_log_loads_to_the_same_groups(
    empty_root: Path, steps: list[Any], retention: int
):
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(empty_root, root, dirs_exist_ok=True)
        log, now = Log(root), START
        last = [("commit", "a", 1, ("z", 0)), ("roll",), ("commit", "a", 2, ("z", 0))]
        for name, *arguments in [*steps, *last, ("compact", 0.0)]:
            if name == "commit":
                group, offset, where = arguments
                log.append(commit(group, offset, now, where))
            elif name == "stored":
                group, generation = arguments
                log.append(stored(group, generation, now))
            elif name == "roll":
                log.roll()
            elif name == "wait":
                now += arguments[0]
            else:
                chosen = upkeep(
                    min_cleanable_dirty_ratio=arguments[0], offsets_history_retention_ms=retention
                )
                # Files are as old as this test, records as old as its clock, so no minimum lag is
                # set.
                result = compact(root, chosen, now, lambda _: None)
        # The last one always had work to do.
        assert result.skipped is None
        left, past = log.read(), log.superseded()
    for group in GROUPS:
        assert loaded(group, left) == loaded(group, log.records)
    if not retention:
        assert past == []
        return
    places = [(record.partition, record.log_offset) for record in (*left, *past)]
    assert len(places) == len(set(places))
    for moment in {record.timestamp for record in log.records} | {now - retention, now}:
        if moment >= now - retention:
            assert as_of(moment, left + past) == as_of(moment, log.records)


def loaded(group_id: str, records: list[CoordinatorRecord]) -> Any:
    group = replay(group_id, [record for record in records if record.group_id == group_id])
    return None if group is None else (group.recorded, group_value(group), group.offsets)


def as_of(moment: int, records: list[CoordinatorRecord]) -> dict[Any, int]:
    offsets: dict[Any, int] = {}
    for record in sorted(records, key=lambda record: record.log_offset or 0):
        if record.record_type == OFFSET_COMMIT and record.timestamp <= moment:
            key = (record.group_id, record.topic, record.topic_partition)
            offsets.pop(key, None)
            if record.offset_commit is not None:
                offsets[key] = record.offset_commit.offset
    return offsets
