"""What a start of a node goes on from, and when it begins afresh."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable, write_deltalake

from group_coordinator.coordinator.group.group_snapshot import VERSION
from group_coordinator.coordinator.group.partition import PartitionSet
from group_coordinator.pipeline.delta.appender import Appender, Epoch
from group_coordinator.pipeline.delta.table_files import TableFiles
from group_coordinator.pipeline.node import bootstrap as of_bootstrap
from group_coordinator.pipeline.node.bootstrap import (
    CLAIMS,
    begin_new_checkpoint,
    bootstrap_end,
    prepare_bootstrap,
    prepared_bootstrap,
)
from group_coordinator.pipeline.node.node import start
from group_coordinator.pipeline.node.resumption import (
    Resumption,
    find_resumption,
    is_void,
    loss_reason,
)
from group_coordinator.pipeline.stream.offset import Bootstrap, Offset, Planned, Position, Selection
from group_coordinator.pipeline.stream.packed_events import PACKED_SCHEMA
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.schemas.tables import REQUESTS
from tests.pipeline.node.fake_engine import FakeEngine
from tests.pipeline.node.looks import node_settings
from tests.pipeline.node.test_handover import bring
from tests.pipeline.rows import heartbeat

QUERY = "query-id"
OFFSET = '{"bootstrap":[1,0],"requests":[7,0],"run":0,"selection":{}}'
OURS = Planned(7, OFFSET, QUERY)
BEGAN = Bootstrap("bootstrap", 1, 1)


# --- what is decided, without a table -------------------------------------------------------------


@pytest.mark.parametrize("offset", ['{"sourceVersion":1}', '{"bootstrap":[1,0],"requests":[7,0]}'])
def test_a_batch_of_another_source_is_none_of_ours(offset: str) -> None:
    assert (
        loss_reason(Planned(7, offset, QUERY), BEGAN, 7)
        == "was written by another source or release"
    )


def test_nor_is_a_checkpoint_of_which_nobody_says_where_it_began() -> None:
    assert loss_reason(OURS, None, 7) == "was written by another source or release"


def test_states_of_this_release_are_gone_on_with_and_others_are_not() -> None:
    assert loss_reason(OURS, BEGAN, 7) is None
    for version in (VERSION - 1, VERSION + 1):
        reason = loss_reason(OURS, Bootstrap("bootstrap", 1, 1, version), 7)
        assert reason is not None
        assert f"version {version}" in reason and f"version {VERSION}" in reason


@pytest.mark.parametrize(("written", "older"), [(-1, False), (6, False), (7, False), (8, True)])
def test_a_checkpoint_behind_the_tables_is_older(written: int, older: bool) -> None:
    """Batches without rows are in no table; the last planned one may be there and is run again."""
    reason = loss_reason(OURS, BEGAN, written)
    assert (reason is not None) is older
    assert reason is None or ("batch 8" in reason and "only batch 7" in reason)


def test_a_checkpoint_that_names_no_query_is_not_gone_on_with() -> None:
    """Spark would give it another id, under which the last batch would be written twice."""
    assert loss_reason(Planned(7, OFFSET), BEGAN, -1) == "has no query id"


@pytest.mark.parametrize(
    ("claims", "void"), [([], True), ([5, 6], True), ([4, 9], False), ([3], False)]
)
def test_what_was_decided_before_all_claims_is_void(claims: list[int], void: bool) -> None:
    """The claim of the bootstrap has epoch 4: others have had every partition of a later one."""
    assert is_void(Resumption(OURS, BEGAN, 4), claims) is void


# --- what is found --------------------------------------------------------------------------------


@pytest.fixture
def uri(root: str) -> str:
    return f"{root}/bootstrap"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine({"checkpoint": OURS})


def test_without_a_planned_batch_a_start_begins_afresh_and_says_nothing(
    root: str, uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first batch may still begin with any bootstrap."""
    prepare_bootstrap(root, uri, transactions={CLAIMS: 4})
    assert find_resumption(FakeEngine(), root, "checkpoint", uri, [4], 1) is None
    assert told(caplog) == []


def test_without_a_bootstrap_a_start_begins_afresh(root: str, uri: str, engine: FakeEngine) -> None:
    assert find_resumption(engine, root, "checkpoint", uri, [4], 1) is None


def test_a_bootstrap_that_was_cut_off_is_none(
    root: str, uri: str, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    write_deltalake(uri, PACKED_SCHEMA.empty_table())
    assert find_resumption(engine, root, "checkpoint", uri, [4], 1) is None
    assert "another source or release" in told(caplog)[0]


def test_a_first_batch_that_was_cut_off_begins_where_it_began(
    root: str, uri: str, engine: FakeEngine
) -> None:
    """What was answered before it is not read again, though the log of requests still has it."""
    RequestLog(root).append([heartbeat("answered", "g")])
    began = begin_new_checkpoint(FakeEngine(), root, "checkpoint", uri, None, 4)
    RequestLog(root).append([heartbeat("in the first batch", "g")])
    bring(root, uri, PartitionSet({1}, 2), 9)
    assert find_resumption(engine, root, "checkpoint", uri, [4, 9], 1) == Resumption(OURS, began, 9)
    assert began.first_version == 2
    assert find_resumption(engine, root, "checkpoint", uri, [12], 1) is None, (
        "others had all partitions since"
    )


def test_a_checkpoint_of_requests_that_were_made_anew_counts_as_lost(
    root: str, uri: str, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """Its position would be one in the new table, whose first requests nobody would answer."""
    begin_new_checkpoint(FakeEngine(), root, "checkpoint", uri, None, 4)
    assert find_resumption(engine, root, "checkpoint", uri, [4], 1) is not None
    shutil.rmtree(Path(root, "requests"))
    ensure_table(root, REQUESTS)
    for number in range(9):
        RequestLog(root).append([heartbeat(f"in the new table {number}", "g")])
    assert find_resumption(engine, root, "checkpoint", uri, [4], 1) is None
    assert "another table of requests" in told(caplog)[-1]


def test_a_checkpoint_of_a_release_that_named_no_table_is_gone_on_with(
    root: str, uri: str, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(of_bootstrap, "_REQUESTS_TABLE", "something-else")
        begin_new_checkpoint(FakeEngine(), root, "checkpoint", uri, None, 4)
    assert find_resumption(engine, root, "checkpoint", uri, [4], 1) is not None


def test_a_bootstrap_that_says_no_version_is_of_the_first_that_said_none(
    root: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(of_bootstrap, "_STATE_VERSION", "something-else")
        prepare_bootstrap(root, uri)
    found = prepared_bootstrap(uri)
    assert found is not None and found.state_version == 2


@pytest.mark.parametrize(
    "table", ["offsets_topic", "group_events", "rejected_requests", "responses"]
)
def test_an_older_copy_of_a_checkpoint_counts_as_a_lost_one(
    root: str, uri: str, engine: FakeEngine, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its next batches would have ids that the table has, and their rows would not be written."""
    prepare_bootstrap(root, uri, transactions={CLAIMS: 4})
    appender = Appender(f"{root}/{table}")
    appender.append(None, QUERY, 7)
    appender.append(None, "another query", 9)
    assert find_resumption(engine, root, "checkpoint", uri, [4], 1) is not None, (
        "a crash within batch 7"
    )
    appender.append(None, QUERY, 8)
    assert find_resumption(engine, root, "checkpoint", uri, [4], 1) is None
    (line,) = told(caplog)
    assert "is older than the tables" in line


def test_an_older_copy_of_a_bootstrap_makes_its_checkpoint_a_lost_one(
    root: str, uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is appended to the copy would have versions that the stream has passed."""
    began = begin_new_checkpoint(FakeEngine(), root, "checkpoint", uri, None, 4)
    shutil.copytree(uri, f"{root}/copy")
    bring(root, uri, PartitionSet({1}, 2), 9)
    read = Offset(Position(bootstrap_end(uri)), Position(7), 0, Selection())
    planned = Planned(7, msgspec.json.encode(read).decode(), QUERY)
    engine = FakeEngine({"checkpoint": planned})
    assert find_resumption(engine, root, "checkpoint", uri, [4], 1) == Resumption(planned, began, 9)
    assert find_resumption(engine, root, "checkpoint", f"{root}/copy", [4], 1) is None
    (line,) = told(caplog)
    assert "more of its bootstrap than exists" in line


def test_a_copy_from_before_a_stream_that_was_begun_since_counts_as_a_lost_one(
    root: str, uri: str, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """Under its own query the tables have no later batch; another query has decided since."""
    begin_new_checkpoint(FakeEngine(), root, "checkpoint", uri, None, 4, start=Epoch(1, 3))
    begin_new_checkpoint(
        FakeEngine(), root, "other node", f"{root}/others", None, 4, start=Epoch(2, 9)
    )
    assert find_resumption(engine, root, "checkpoint", uri, [4], 1) is not None
    begin_new_checkpoint(FakeEngine(), root, "newer", f"{root}/newer", None, 4, start=Epoch(1, 8))
    assert find_resumption(engine, root, "checkpoint", uri, [4], 1) is None
    (line,) = told(caplog)
    assert "has started since" in line
    assert find_resumption(engine, root, "checkpoint", f"{root}/newer", [4], 1) is not None


def test_an_older_copy_of_all_checkpoints_of_a_node_is_not_gone_on_with(root: str) -> None:
    """The copy is of a first stream; a second one was begun without it."""
    engine = FakeEngine()
    start(engine, root, node_settings(1)).stop()
    checkpoints, copy = Path(root, "_checkpoints"), Path(root, "copy")
    copy_of_planned = dict(engine.planned)
    shutil.copytree(checkpoints, copy)
    shutil.rmtree(checkpoints)
    engine.planned.clear()
    start(engine, root, node_settings(1)).stop()
    shutil.rmtree(checkpoints)
    copy.rename(checkpoints)
    engine.planned.clear()
    engine.planned.update(copy_of_planned)
    start(engine, root, node_settings(1)).stop()
    assert engine.gone_on_from == [None, None, None]


# --- a node ---------------------------------------------------------------------------------------


def test_a_query_goes_on_from_the_batch_that_was_planned_last(root: str) -> None:
    """With its pinned settings and its ticks, which are found by it."""
    engine = FakeEngine()
    start(engine, root, node_settings(1)).stop()
    (planned,) = engine.planned.values()
    start(engine, root, node_settings(1)).stop()
    assert engine.gone_on_from == [None, planned]


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_states_of_another_version_count_as_a_lost_checkpoint(
    root: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    """Nobody is asked to delete anything."""
    engine = FakeEngine()
    start(engine, root, node_settings(1)).stop()
    (first,) = engine.bootstraps
    # As if a release that keeps such states had begun this streaming checkpoint.
    TableFiles(DeltaTable(first.uri), tmp_path).rewrite([], [], {"state-version": version})
    start(engine, root, node_settings(1)).stop()
    second = engine.bootstraps[-1]
    assert second.version > first.version, "the tables bring the groups back"
    assert second.state_version == VERSION
    (line,) = told(caplog)
    assert f"version {version}" in line
    start(engine, root, node_settings(1)).stop()
    assert engine.bootstraps[-1].version == second.version, "which is gone on with"
    assert len(told(caplog)) == 1
    assert [batch is None for batch in engine.gone_on_from] == [True, True, False]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if "the groups are loaded from the tables" in each]
