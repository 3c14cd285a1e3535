"""How a change of partitions reaches a node's stream."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from group_coordinator.coordinator.group.control import UNLOAD_EVENT
from group_coordinator.coordinator.group.partition import PartitionSet, partition_for
from group_coordinator.pipeline.delta import table_files
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.tail import Position, appended
from group_coordinator.pipeline.node.bootstrap import prepare_bootstrap
from group_coordinator.pipeline.node.handover import (
    CLAIMS,
    begin_afresh,
    begun_with,
    bootstrap_end,
    bring_in,
    give_up,
    passed_over,
)
from group_coordinator.pipeline.node.read_ahead import ReadAhead
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.bootstrap import Bootstrap
from group_coordinator.pipeline.stream.change import SelectionChange, change_row
from group_coordinator.pipeline.stream.offset import Planned, Selection
from group_coordinator.pipeline.stream.packed import FIRST_KEY, PACKED_SCHEMA
from group_coordinator.pipeline.tables.request_log import RequestLog
from tests.pipeline.node.test_bootstrap import write_groups
from tests.pipeline.rows import heartbeat


class Checkpoints:
    """An engine of which only the streaming checkpoint's last offset is asked."""

    def __init__(self) -> None:
        self.offset: str | None = None

    def delete_checkpoint(self, _checkpoint: str) -> None:
        self.offset = None

    def last_planned(self, _checkpoint: str) -> Planned | None:
        return None if self.offset is None else Planned(7, self.offset)


def test_a_checkpoint_that_is_none_of_ours_is_begun_anew(root, caplog):
    engine, uri = Checkpoints(), f"{root}/bootstrap"
    engine.offset = '{"bootstrap":[1,0],"requests":[7,0],"run":0,"selection":{}}'
    assert begun_with(engine, "checkpoint", uri) is None, "there is no bootstrap"
    write_deltalake(uri, PACKED_SCHEMA.empty_table())
    assert begun_with(engine, "checkpoint", uri) is None, "nobody says where the stream began"
    prepare_bootstrap(root, uri)
    assert begun_with(engine, "checkpoint", uri) == (Bootstrap(uri, 2, 1), -1)
    engine.offset = None
    caplog.clear()
    assert begun_with(engine, "checkpoint", uri) is None, "nothing is planned"
    assert "none of ours" not in caplog.text
    for other in ('{"sourceVersion":1}', '{"bootstrap":[1,0],"requests":[7,0]}'):
        engine.offset = other
        assert begun_with(engine, "checkpoint", uri) is None
    assert "none of ours" in caplog.text


def test_a_first_batch_that_was_cut_off_begins_where_it_began(root):
    """What was answered before it is not read again, though the log of requests still has it."""
    engine, uri = Checkpoints(), f"{root}/bootstrap"
    RequestLog(root).append([heartbeat("answered", "g")])
    began = begin_afresh(engine, root, "checkpoint", uri, None, 4)
    RequestLog(root).append([heartbeat("in the first batch", "g")])
    bring(root, uri, PartitionSet({1}, 2), 9)
    engine.offset = '{"bootstrap":[2,0],"requests":[3,0],"run":0,"selection":{}}'
    assert begun_with(engine, "checkpoint", uri) == (began, 9)
    assert began.first_version == 2


def test_a_claim_is_brought_in_by_one_commit_with_what_it_covers(root):
    engine, uri = Checkpoints(), f"{root}/bootstrap"
    begin_afresh(engine, root, "checkpoint", uri, PartitionSet({0}, 2), 4)
    assert passed_over(uri, {0}) == {}
    RequestLog(root).append([heartbeat("waits", "g")])
    RequestLog(root).append([heartbeat("waits too", "h")])
    before = DeltaTable(uri).version()
    bring(root, uri, PartitionSet({1}, 2), 9)
    after = DeltaTable(uri)
    assert after.version() == before + 1
    assert after.transaction_version(CLAIMS) == 9
    assert passed_over(uri, {0, 1}) == {1: 2}


def test_whoever_is_killed_before_that_commit_has_brought_in_nothing(root, monkeypatch):
    engine, uri = Checkpoints(), f"{root}/bootstrap"
    begin_afresh(engine, root, "checkpoint", uri, PartitionSet({0}, 2), 4)
    RequestLog(root).append([heartbeat("waits", "g")])
    with monkeypatch.context() as patch:
        patch.setattr(table_files.TableFiles, "rewrite", _killed)
        with pytest.raises(KeyboardInterrupt):
            bring(root, uri, PartitionSet({0, 1}, 2), 9)
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 0
    engine.offset = '{"bootstrap":[1,0],"requests":[7,0],"run":0,"selection":{}}'
    assert begun_with(engine, "checkpoint", uri) == (Bootstrap(uri, 1, 1), 4)
    bring(root, uri, PartitionSet({0, 1}, 2), 9)
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 1


def test_a_query_that_runs_is_told_what_it_selects_after_what_loads_groups(root):
    uri = f"{root}/bootstrap"
    begin_afresh(Checkpoints(), root, "checkpoint", uri, PartitionSet({0}, 3), 4)
    RequestLog(root).append([heartbeat("waits", group_of(1))])
    at = Position(bootstrap_end(uri))
    assert bring(root, uri, PartitionSet({1}, 3), 9, run=7, kept={0, 1}) == 1
    (waits,), (change,) = pages(uri, at)
    assert waits[0] == group_of(1)
    assert change == change_row(SelectionChange(7, Selection((0, 1), 3, {1: 1})))
    # It is given up: in the batch that reads no more requests of it, its groups are unloaded.
    write_groups(root, group_of(1))
    at = Position(bootstrap_end(uri))
    give_up(root, uri, PartitionSet({1}, 3), run=7, kept={0})
    (rows,) = pages(uri, at)
    unload = (group_of(1), FIRST_KEY + UNLOAD_EVENT)
    assert rows == [change_row(SelectionChange(7, Selection((0,), 3))), unload]


def test_who_waits_in_a_group_without_records_is_answered_by_the_next_owner(root):
    """Nobody looks for it among all requests when the partition is given up: that takes seconds."""
    uri = f"{root}/bootstrap"
    begin_afresh(Checkpoints(), root, "checkpoint", uri, PartitionSet({0, 1}, 3), 4)
    RequestLog(root).append([heartbeat("a first join", group_of(1))])
    at = Position(bootstrap_end(uri))
    give_up(root, uri, PartitionSet({1}, 3), run=7, kept={0})
    assert pages(uri, at) == [[change_row(SelectionChange(7, Selection((0,), 3)))]]
    theirs = f"{root}/theirs"
    begin_afresh(Checkpoints(), root, "theirs", theirs, PartitionSet({2}, 3), 5)
    at = Position(bootstrap_end(theirs))
    bring(root, theirs, PartitionSet({1}, 3), 9)
    (((group, event),),) = pages(theirs, at)
    assert group == group_of(1)
    assert "a first join" in event


def bring(root: str, uri: str, partition_set: PartitionSet, epoch: int, **some: Any) -> int:
    with ReadAhead(root, CoordinatorSettings()) as ahead:
        ahead.read_on()
        return bring_in(ahead, uri, partition_set, epoch, **some)


def group_of(partition: int) -> str:
    return next(g for g in map("g{}".format, range(99)) if partition_for(g, 3) == partition)


def pages(uri: str, start: Position) -> list[list[tuple[str, str]]]:
    found = (rows for rows, _ in appended(open_files(uri), start, PACKED_SCHEMA.names))
    return [[tuple(row.values()) for row in rows.to_pylist()] for rows in found if rows is not None]


def _killed(*_args):
    raise KeyboardInterrupt
