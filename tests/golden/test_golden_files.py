"""This release reads the files of earlier releases, without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from group_coordinator.coordinator.group.group_snapshot import VERSION, UnknownSnapshot, decode
from group_coordinator.pipeline.delta.torn import find_torn
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.node.node import start
from group_coordinator.pipeline.node.resumption import checkpoint_uri, stream_uri
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.session.checkpoint_files import query_id
from group_coordinator.pipeline.stream.offset import Planned, offset_of
from group_coordinator.pipeline.tables.columns import check_columns
from group_coordinator.pipeline.tables.store import ensure_tables, has_table, open_table
from group_coordinator.pipeline.tables.topic_catalogue import counts_of, read_newest
from group_coordinator.schemas.tables import ON_DEMAND, TABLES
from tests.golden.record import (
    HERE,
    NODE_ID,
    RESTORED_AT,
    Golden,
    answers_of,
    decided,
    heartbeat,
    loaded,
    read,
    releases,
    settings,
)
from tests.golden.state_store import last_batch, read_states
from tests.pipeline.node.fake_engine import FakeEngine

GROUPS = [(release, group) for release in releases() for group in read(release).groups]


@pytest.fixture(params=releases())
def golden(request: pytest.FixtureRequest) -> Golden:
    return read(request.param)


@pytest.fixture
def root(golden: Golden, tmp_path: Path) -> str:
    """Return a copy of the golden root in another location."""
    shutil.copytree(HERE / golden.release / "root", tmp_path / "root")
    return str(tmp_path / "root")


def test_there_is_a_golden_root() -> None:
    assert releases()


# --- the state store ------------------------------------------------------------------------------


def test_the_states_are_those_of_the_streaming_checkpoint(golden: Golden, root: str) -> None:
    (folder,) = Path(checkpoint_uri(root, NODE_ID)).iterdir()
    stream = Path(stream_uri(str(folder)))
    assert last_batch(stream) == golden.last_batch
    assert read_states(stream).items() >= {
        (group_id, group.state) for group_id, group in golden.groups.items()
    }


@pytest.mark.parametrize(("release", "group_id"), GROUPS)
def test_a_state_is_read_as_the_group_that_it_was(release: str, group_id: str) -> None:
    golden = read(release)
    group = golden.groups[group_id]
    assert answers_of(group_id, group.state, golden.written_at) == group.live
    for beat in group.heartbeats:
        event = heartbeat(group_id, "beat", beat.body)
        (answer,) = decided(group_id, group.state, [event], golden.written_at)
        assert answer.error_code == beat.error_code, beat


def test_the_states_remember_the_requests_that_were_decided(golden: Golden) -> None:
    remembering = {key: group for key, group in golden.groups.items() if group.remembered}
    assert remembering
    for group_id, group in remembering.items():
        assert decided(group_id, group.state, group.remembered, golden.written_at) == []
        # After the window they are requests like all others.
        over = golden.written_at + 60_001
        answers = decided(group_id, group.state, group.remembered, over)
        assert [one.request_id for one in answers] == [one.request_id for one in group.remembered]


def test_whoever_waits_within_a_group_still_waits(golden: Golden) -> None:
    assert golden.parked
    for request_id, group_id in golden.parked.items():
        group = decode(golden.groups[group_id].state).group
        assert group is not None
        waiting = [m.awaiting_join or m.awaiting_sync for m in group.members.values()]
        assert request_id in [parked.request_id for parked in waiting if parked is not None]


def test_a_state_of_a_release_that_is_unknown_is_refused_by_its_version(golden: Golden) -> None:
    for group in golden.groups.values():
        later = bytes([VERSION + 1]) + group.state[1:]
        with pytest.raises(UnknownSnapshot, match=f"version {VERSION + 1}, this release reads"):
            decode(later)


# --- the tables -----------------------------------------------------------------------------------


def test_the_tables_are_brought_up_to_date(golden: Golden, root: str) -> None:
    ensure_tables(root)
    there = [table for table in ON_DEMAND if has_table(root, table)]
    for table in [*TABLES.values(), *there]:
        assert check_columns(open_table(root, table), table) == [], table.name


@pytest.mark.full
def test_the_groups_are_restored_from_the_offsets_topic(
    golden: Golden, root: str, tmp_path: Path
) -> None:
    ensure_tables(root)
    states = loaded(root, tmp_path)
    assert {group.loaded.describe.error for group in golden.groups.values()} == {"NONE"}
    for group_id, group in golden.groups.items():
        assert answers_of(group_id, states[group_id], RESTORED_AT) == group.loaded, group_id


def test_the_tables_are_read_as_they_are(golden: Golden, root: str) -> None:
    catalog = Catalog(root)
    assert read_counts(root) == golden.topics
    found = {row[0] for row in catalog.query('SELECT group_id FROM "groups"').rows}
    assert golden.groups.keys() <= found
    assert catalog.query("SELECT count(*) FROM coordinators").rows


def read_counts(root: str) -> dict[str, int]:
    return counts_of(read_newest(root))


def test_nothing_in_a_golden_root_says_where_it_was_written(golden: Golden) -> None:
    for file in (HERE / golden.release).rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            for path in (b"/tmp/", b"/work/", b"file:/", b"/home/"):
                assert path not in content, (file, path)


def test_no_table_of_a_golden_root_is_torn(golden: Golden, root: str) -> None:
    tables = [path.parent for path in Path(root).rglob("_delta_log")]
    assert len(tables) >= len(TABLES)
    assert [torn for table in tables for torn in find_torn(table)] == []


def test_a_golden_root_is_small(golden: Golden) -> None:
    files = [each for each in (HERE / golden.release).rglob("*") if each.is_file()]
    assert sum(each.stat().st_size for each in files) < 1_000_000


# --- the streaming checkpoint ---------------------------------------------------------------------


def test_a_start_goes_on_from_the_streaming_checkpoint(golden: Golden, root: str, caplog) -> None:
    """Everything but Spark: the engine gets the offsets of Spark's own offset log."""
    (folder,) = Path(checkpoint_uri(root, NODE_ID)).iterdir()
    *_, offset = (
        Path(stream_uri(str(folder)), "offsets", str(golden.last_batch)).read_text().split("\n")
    )
    assert offset_of(offset) is not None
    checkpoint = stream_uri(str(folder))
    of_query = query_id(None, checkpoint)  # type: ignore[arg-type]
    engine = FakeEngine({checkpoint: Planned(golden.last_batch, offset, of_query)})
    with caplog.at_level("INFO"):
        node = start(engine, root, settings())
    try:
        assert [
            m for m in caplog.messages if "took over" in m or "another source or release" in m
        ] == []
        (query,) = engine.queries
        assert query.selection.partitions is None
    finally:
        node.abandon()


@pytest.mark.full
def test_another_node_takes_the_groups_over_from_the_tables(
    golden: Golden, root: str, caplog
) -> None:
    another = settings().with_node_id(NODE_ID + 1)
    with caplog.at_level("INFO"):
        node = start(FakeEngine(), root, another)
    try:
        assert DecisionLog(root).read().nodes[NODE_ID].stopped
        assert any("took over from the tables" in message for message in caplog.messages)
        (bootstrap,) = Path(checkpoint_uri(root, NODE_ID + 1)).glob("epoch-*/bootstrap")
        events = DeltaTable(str(bootstrap)).to_pyarrow_table().to_pylist()
        asked = {msgspec.json.decode(e["event"][18:]).get("request_id") for e in events}
        waiting = {event.request_id for event in golden.unanswered} | set(golden.parked)
        assert waiting <= asked
    finally:
        node.abandon()


def test_a_member_s_session_begins_afresh_whenever_the_root_is_started() -> None:
    for release, group_id in GROUPS:
        golden = read(release)
        years = golden.written_at + 50 * 365 * 86_400_000
        group = golden.groups[group_id]
        later = answers_of(group_id, group.state, years, start_later=True)
        assert later == group.live, group_id
