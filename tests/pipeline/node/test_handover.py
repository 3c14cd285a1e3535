"""How a change of partitions reaches a node's stream."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable

from group_coordinator.coordinator.group.control import UNLOAD_EVENT
from group_coordinator.coordinator.group.partition import PartitionSet, partition_for
from group_coordinator.pipeline.delta import table_files
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.tail import Position, appended
from group_coordinator.pipeline.node.bootstrap import (
    CLAIMS,
    append_claims,
    append_unloads,
    begin_new_checkpoint,
    bootstrap_end,
    newest_claim,
    passed_over,
)
from group_coordinator.pipeline.node.read_ahead import ReadAhead
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.offset import Selection, SelectionChange, change_row
from group_coordinator.pipeline.stream.packed_events import FIRST_KEY, PACKED_SCHEMA
from group_coordinator.pipeline.tables.request_log import RequestLog
from tests.pipeline.node.fake_engine import FakeEngine
from tests.pipeline.node.test_bootstrap import write_groups
from tests.pipeline.rows import heartbeat


def test_a_claim_is_brought_in_by_one_commit_with_what_it_covers(root):
    engine, uri = FakeEngine(), f"{root}/bootstrap"
    begin_new_checkpoint(engine, root, "checkpoint", uri, PartitionSet({0}, 2), 4)
    assert passed_over(uri, {0}) == {}
    RequestLog(root).append([heartbeat("waits", "g")])
    RequestLog(root).append([heartbeat("waits too", "h")])
    before = DeltaTable(uri).version()
    bring(root, uri, PartitionSet({1}, 2), 9)
    after = DeltaTable(uri)
    assert after.version() == before + 1
    assert after.transaction_version(CLAIMS) == 9
    assert passed_over(uri, {0, 1}) == {1: 2}


@pytest.mark.parametrize("partition_set", [None, PartitionSet({0, 1}, 2)])
def test_a_stream_that_begins_afresh_passes_over_nothing_that_an_earlier_one_did(
    root, partition_set
):
    """Of a table of requests that was made anew it would answer nothing up to that version."""
    engine, uri = FakeEngine(), f"{root}/bootstrap"
    begin_new_checkpoint(engine, root, "checkpoint", uri, PartitionSet({0}, 2), 4)
    RequestLog(root).append([heartbeat("waits", "g")])
    bring(root, uri, PartitionSet({1}, 2), 9)
    assert passed_over(uri, {0, 1}) == {1: 1}
    begin_new_checkpoint(engine, root, "checkpoint", uri, partition_set, 12, of=2)
    assert passed_over(uri, {0, 1}) == {}


def test_whoever_is_killed_before_that_commit_has_brought_in_nothing(root, monkeypatch):
    engine, uri = FakeEngine(), f"{root}/bootstrap"
    begin_new_checkpoint(engine, root, "checkpoint", uri, PartitionSet({0}, 2), 4)
    RequestLog(root).append([heartbeat("waits", "g")])
    with monkeypatch.context() as patch:
        patch.setattr(table_files.TableFiles, "rewrite", _killed)
        with pytest.raises(KeyboardInterrupt):
            bring(root, uri, PartitionSet({0, 1}, 2), 9)
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 0
    assert newest_claim(uri) == 4
    bring(root, uri, PartitionSet({0, 1}, 2), 9)
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 1


def test_a_query_that_runs_is_told_what_it_selects_after_what_loads_groups(root):
    uri = f"{root}/bootstrap"
    begin_new_checkpoint(FakeEngine(), root, "checkpoint", uri, PartitionSet({0}, 3), 4)
    RequestLog(root).append([heartbeat("waits", group_of(1))])
    at = Position(bootstrap_end(uri))
    assert bring(root, uri, PartitionSet({1}, 3), 9, run=7, kept={0, 1}) == 1
    (waits,), (change,) = pages(uri, at)
    assert waits[0] == group_of(1)
    assert change == change_row(SelectionChange(7, Selection((0, 1), 3, {1: 1})))
    # It is given up: in the batch that reads no more requests of it, its groups are unloaded.
    write_groups(root, group_of(1))
    at = Position(bootstrap_end(uri))
    append_unloads(root, uri, PartitionSet({1}, 3), run=7, kept={0})
    (rows,) = pages(uri, at)
    unload = (group_of(1), FIRST_KEY + UNLOAD_EVENT)
    assert rows == [change_row(SelectionChange(7, Selection((0,), 3))), unload]


def test_who_waits_in_a_group_without_records_is_answered_by_the_next_owner(root):
    """Nobody looks for it among all requests when the partition is given up: that takes seconds."""
    uri = f"{root}/bootstrap"
    begin_new_checkpoint(FakeEngine(), root, "checkpoint", uri, PartitionSet({0, 1}, 3), 4)
    RequestLog(root).append([heartbeat("a first join", group_of(1))])
    at = Position(bootstrap_end(uri))
    append_unloads(root, uri, PartitionSet({1}, 3), run=7, kept={0})
    assert pages(uri, at) == [[change_row(SelectionChange(7, Selection((0,), 3)))]]
    theirs = f"{root}/theirs"
    begin_new_checkpoint(FakeEngine(), root, "theirs", theirs, PartitionSet({2}, 3), 5)
    at = Position(bootstrap_end(theirs))
    bring(root, theirs, PartitionSet({1}, 3), 9)
    (((group, event),),) = pages(theirs, at)
    assert group == group_of(1)
    assert "a first join" in event


def bring(root: str, uri: str, partition_set: PartitionSet, epoch: int, **some: Any) -> int:
    with ReadAhead(root, CoordinatorSettings()) as ahead:
        ahead.read_on()
        return append_claims(ahead, uri, partition_set, epoch, **some)


def group_of(partition: int) -> str:
    return next(g for g in map("g{}".format, range(99)) if partition_for(g, 3) == partition)


def pages(uri: str, start: Position) -> list[list[tuple[str, str]]]:
    found = (rows for rows, _ in appended(open_files(uri), start, PACKED_SCHEMA.names))
    return [[tuple(row.values()) for row in rows.to_pylist()] for rows in found if rows is not None]


def _killed(*_args):
    raise KeyboardInterrupt
