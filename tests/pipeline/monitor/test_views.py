"""The views of a root, over whatever groups have committed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    TopicPartition,
    decode_assignment,
    encode_assignment,
)
from group_coordinator.pipeline import background
from group_coordinator.pipeline.admin.descriptions import (
    group_summaries,
    list_groups,
    partition_lags,
)
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.monitor import catalog as catalog_module
from group_coordinator.pipeline.monitor.catalog import Catalog, QueryError
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    OFFSET_COMMIT,
    CoordinatorEvent,
    CoordinatorRecord,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from group_coordinator.schemas.tables import COORDINATORS, to_arrow
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.topics.logs import appender, batch, make
from tests.pipeline.topics.tables import append, define, ends, opened


@pytest.fixture
def log(root: str) -> Log:
    return Log(root)


def timed(group: str, committed_at: int, expires_at: int = -1) -> CoordinatorRecord:
    value = OffsetCommitValue(7, -1, "", committed_at, expires_at)
    return CoordinatorRecord(0, OFFSET_COMMIT, group, 5, None, "t", 0, offset_commit=value)


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), 253_402_300_800_000, -62_135_596_800_001])
def test_a_commit_at_a_time_without_a_date_hides_no_other_group(log: Log, time: int) -> None:
    log.append(timed("far", time, 2**63 - 1), timed("near", 86_400_000))
    catalog = Catalog(log.root)
    query = "SELECT group_id, committed_at, expires_at FROM committed_offsets ORDER BY group_id"
    far, near = catalog.query(query).rows
    assert far == ("far", None, None)
    assert near[1].isoformat() == "1970-01-02T00:00:00"
    query = "SELECT group_id, due_at FROM expiring_offsets ORDER BY group_id"
    assert [row[1] and row[1].isoformat() for row in catalog.query(query).rows] == [
        None,
        "1970-01-09T00:00:00",
    ]


def test_an_offset_that_was_deleted_is_committed_no_more(log: Log) -> None:
    log.append(commit("g", 5, 1), commit("g", 6, 1, ("t", 1)), commit("g", None, 2))
    query = 'SELECT "partition", committed_offset FROM committed_offsets'
    assert Catalog(log.root).query(query).rows == [(1, 6)]


def test_ctrl_c_ends_a_query_as_it_ends_python(log: Log) -> None:
    """Not by DuckDB's RuntimeError, which `watch` would show as a bug."""

    catalog = Catalog(log.root)
    catalog.query("SHOW TABLES")

    ended = threading.Event()

    def interrupt() -> None:
        # An interrupt that comes while Python finalizes an object is lost: then another one.
        wait_s = 0.05
        while not ended.wait(wait_s):
            os.kill(os.getpid(), signal.SIGINT)
            wait_s = 10.0

    def interrupted() -> None:
        threading.Thread(target=interrupt).start()
        try:
            catalog.query("SELECT sum(a.range * b.range) FROM range(10000000) a, range(1000000) b")
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_ctrl_c_ends_what_a_catalogue_begins_with(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is short, but an interrupt may come at any time."""

    class Interrupted:
        def execute(self, _sql: str) -> None:
            raise RuntimeError("Query interrupted")

    monkeypatch.setattr(duckdb, "connect", lambda _name: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        Catalog(log.root)


def test_ctrl_c_while_a_query_begins_leaves_no_thread_behind(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(log.root)
    start = background.start

    def interrupted(*given: Any) -> background.BackgroundThread:
        started.append(start(*given))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    started: list[background.BackgroundThread] = []
    monkeypatch.setattr(background, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        catalog.query("SELECT 1")
    assert [each.is_alive() for each in started] == [False]


# --- lag ------------------------------------------------------------------------------------------


def test_a_group_with_records_of_unknown_kinds_is_shown_with_these(log: Log) -> None:
    def member(
        group: str, key: bytes, value: bytes | None, kind: str = "member"
    ) -> CoordinatorRecord:
        return CoordinatorRecord(len(group) % 3, kind, group, 9, key=key, value=value)

    log.append(commit("ours", 1, 5), commit("both", 1, 5), member("both", b"1", b""))
    log.append(member("theirs", b"1", b""), member("theirs", b"1", b"", "epoch"))
    log.append(member("ours", b"1", b""), member("gone", b"1", b""), member("both", b"2", b""))
    log.append(member("ours", b"1", None), member("gone", b"1", None), member("both", b"1", None))
    catalog = Catalog(log.root)
    columns = "group_id, state, kind, num_offsets"
    assert catalog.query(f"SELECT {columns} FROM groups ORDER BY ALL").rows == [
        ("both", "Unknown", "member", 1),
        ("ours", "Empty", "Classic", 1),
        ("theirs", "Unknown", "epoch, member", 0),
    ]
    assert [(each.group_id, each.type) for each in list_groups(catalog, ["Unknown"])] == [
        ("both", "member"),
        ("theirs", "epoch, member"),
    ]
    assert catalog.query("SELECT group_id FROM expiring_offsets").rows == [("ours",)]
    newest = catalog.query('SELECT "key", "value" FROM newest_records ORDER BY group_id, "key"')
    assert [row for row in newest.rows if row[0] == b"2"] == [(b"2", b"")]


def lags(
    root: str, columns: str = "committed_offset, log_end_offset, lag"
) -> list[tuple[Any, ...]]:
    return Catalog(root).query(f"SELECT {columns} FROM lag ORDER BY ALL").rows


def test_lag_is_the_distance_to_the_end_of_a_topic_that_is_a_table(log: Log) -> None:
    topic = make(log.root)
    appender(topic).append([batch(0, "a", "b", "c"), batch(1, "d")])
    log.append(commit("g", 1, 2_000, ("t", 0)), commit("g", 1, 2_000, ("t", 1)))
    log.append(commit("g", 0, 2_000, ("t", 2)))
    asked = '"partition", committed_offset, log_start_offset, log_end_offset, lag'
    assert lags(log.root, asked) == [(0, 1, 0, 3, 2), (1, 1, 0, 1, 0), (2, 0, 0, 0, 0)]


def test_lag_of_a_users_table_ends_where_its_index_ends(log: Log, tmp_path: Path) -> None:
    table = str(tmp_path / "orders")
    append(table, range(20))
    define(log.root, table, 2)
    ended = ends(opened(log.root))
    log.append(commit("g", 3, 2_000, ("t", 0)), commit("g", 0, 2_000, ("t", 1)))
    assert lags(log.root) == sorted(
        (done, end, end - done) for done, (_, end) in zip((3, 0), ended, strict=True)
    )


def test_lag_is_null_where_the_topic_is_no_table(log: Log) -> None:
    log.append(commit("g", 3, 2_000, ("elsewhere", 0)))
    assert lags(log.root, "committed_offset, log_end_offset, lag, lag_seconds") == [
        (3, None, None, None)
    ]


def test_lag_is_not_negative_beyond_the_end(log: Log) -> None:
    appender(make(log.root)).append([batch(0, "a")])
    log.append(commit("g", 99, 2_000))
    assert lags(log.root, "lag, lag_seconds") == [(0, 0)]


def test_a_group_that_commits_while_lag_is_asked_for_is_not_ahead_of_the_end(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are appended and committed between the moments at which the two ends are read."""
    topic = make(log.root)
    appender(topic).append([batch(0, "a")])
    log.append(commit("g", 1, 2_000))
    read = catalog_module.read_log_segments

    def later(root: str, as_of: None) -> pa.Table:
        appender(topic).append([batch(0, "b", "c")])
        log.append(commit("g", 3, 3_000))
        return read(root, as_of)

    monkeypatch.setattr(catalog_module, "read_log_segments", later)
    assert lags(log.root) == [(1, 3, 2)]


def test_lag_in_seconds_is_the_age_of_the_first_record_that_was_not_read(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "clock_ms", lambda: 60_000)
    topic = make(log.root)
    appender(topic).append([batch(0, *"abcde", at=10_000)])
    appender(topic).append([batch(0, "f", at=40_000)])
    for group, offset in (("at the start", 0), ("in between", 4), ("one behind", 5), ("done", 6)):
        log.append(commit(group, offset, 2_000))
    assert lags(log.root, "group_id, lag, lag_seconds") == [
        ("at the start", 6, 50.0),
        ("done", 0, 0.0),
        ("in between", 2, 49.996),
        ("one behind", 1, 20.0),
    ]


def test_lag_in_seconds_begins_at_the_log_start(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records deleted by retention add no lag in time; a record from the future has no age."""
    monkeypatch.setattr(catalog_module, "clock_ms", lambda: 60_000)
    topic = make(log.root)
    appender(topic).append([batch(0, "a", at=10_000)])
    handle = open_delta(topic.table)
    handle.delete()
    appender(topic).append([batch(0, "b", at=30_000)])
    appender(topic).append([batch(1, "b", at=90_000)])
    log.append(commit("g", 0, 2_000), commit("g", 0, 2_000, ("t", 1)))
    assert lags(log.root, "log_start_offset, lag, lag_seconds") == [(0, 1, 0.0), (1, 2, 30.0)]


# --- members --------------------------------------------------------------------------------------


def assigned(group: str, assignment: bytes) -> CoordinatorRecord:
    member = MemberMetadata("m", None, "c", "/h", 1, 2, b"s", assignment)
    value = GroupMetadataValue("consumer", 3, "range", "m", 1, (member,))
    return CoordinatorRecord(0, GROUP_METADATA, group, 1, group_metadata=value)


def encoded(*partitions: tuple[str, int], version: int = 3, data: bytes | None = None) -> bytes:
    wanted = tuple(TopicPartition(*each) for each in partitions)
    return encode_assignment(Assignment(wanted, data), version)


ASSIGNMENTS = {
    "nothing": encoded(),
    "one": encoded(("t", 0)),
    "version 0": encoded(("t", 2), ("größe", 0), ("t", 7), data=b"of the assignor", version=0),
    "many": encoded(*(("t", number) for number in range(300)), version=1),
    "a later version": encoded(("t", 1)) + b"a later version's field",
}


def test_an_assignment_is_decoded_as_its_member_decodes_it(log: Log) -> None:
    log.append(*(assigned(group, assignment) for group, assignment in ASSIGNMENTS.items()))
    catalog = Catalog(log.root)
    decoded = dict(catalog.query("SELECT group_id, assignment FROM group_members").rows)
    rows = catalog.query('SELECT group_id, topic, "partition" FROM member_partitions').rows
    assert decoded.keys() == ASSIGNMENTS.keys()
    for group, assignment in ASSIGNMENTS.items():
        flat = [(each["topic"], n) for each in decoded[group] for n in each["partitions"]]
        assert flat == [tuple(each) for each in decode_assignment(assignment).partitions]
        assert sorted(row[1:] for row in rows if row[0] == group) == sorted(flat)


def test_a_partition_that_no_topic_has_hides_no_other_group(log: Log) -> None:
    """A client that is no consumer of Kafka's may send any 32 bits for it."""
    log.append(assigned("odd", encoded(("t", -(2**31)))), assigned("plain", encoded(("t", 1))))
    catalog = Catalog(log.root)
    asked = 'SELECT group_id, topic, "partition" FROM member_partitions ORDER BY ALL'
    assert catalog.query(asked).rows == [("odd", "t", -(2**31)), ("plain", "t", 1)]


def test_a_partition_is_told_of_by_its_commit_and_by_every_member_that_has_it(log: Log) -> None:
    members = tuple(
        MemberMetadata(f"m{n}", None, f"c{n}", "/h", 1, 2, b"", encoded(*at))
        for n, at in enumerate(([("t", 1)], [("t", 1), ("t", 2)]))
    )
    value = GroupMetadataValue("consumer", 1, "range", "m0", 1, members)
    log.append(CoordinatorRecord(0, GROUP_METADATA, "g", 1, group_metadata=value))
    log.append(commit("g", 3, 2_000, ("t", 0)), commit("g", 4, 2_000, ("t", 1)))
    asked = 'SELECT "partition", committed_offset, member_id FROM group_partitions ORDER BY ALL'
    told = [(0, 3, None), (1, 4, "m0"), (1, 4, "m1"), (2, None, "m1")]
    assert Catalog(log.root).query(asked).rows == told
    (idle,) = partition_lags(Catalog(log.root), ["g"])[:1]
    assert (idle.partition, idle.committed_offset, idle.member_id) == (0, 3, None)


def test_a_groups_coordinator_is_the_owner_of_the_partition_that_has_its_records(log: Log) -> None:
    owned = [CoordinatorEvent(1, 7 + n, "claimed", 7 + n, n, f"host-{n}", 90) for n in (0, 1)]
    Appender(table_uri(log.root, COORDINATORS)).append(to_arrow(COORDINATORS, owned))
    # Their partitions are 1 and 2.
    log.append(commit("mine", 3, 2_000), commit("other", 3, 2_000))
    catalog = Catalog(log.root)
    asked = "SELECT group_id, node_id, host FROM group_coordinators"
    assert catalog.query(asked).rows == [("mine", 8, "host-1")]
    told = [(each.group_id, each.node_id) for each in group_summaries(catalog, ["mine", "other"])]
    assert told == [("mine", 8), ("other", None)]


BROKEN = [
    b"\0",
    b"\0\0\0",
    encoded(("t", 1))[:-6],
    b"\0\0\0\0\0\1\0\1\xff\0\0\0\0",
    b"\0\0" + b"\x7f" * 9,
    b"\0\0\x7f\xff\xff\xff",
    b"\0\0\0\0\0\1\0\1t\x7f\xff\xff\xff",
]


def test_bytes_that_are_no_assignment_are_null_and_hide_no_other_member(log: Log) -> None:
    log.append(*(assigned(f"{n}", assignment) for n, assignment in enumerate(BROKEN)))
    log.append(assigned("left out", b""))
    catalog = Catalog(log.root)
    asked = "SELECT group_id, assignment FROM group_members ORDER BY ALL"
    nulls = [(f"{n}", None) for n in range(len(BROKEN))]
    assert catalog.query(asked).rows == [*nulls, ("left out", [])]
    assert catalog.query("SELECT * FROM member_partitions").rows == []


def test_rows_are_given_as_arrow_too(log: Log) -> None:
    log.append(commit("g", 3, 2_000))
    rows = Catalog(log.root).arrow("SELECT group_id, committed_offset FROM committed_offsets")
    assert rows.to_pylist() == [{"group_id": "g", "committed_offset": 3}]


def test_a_view_that_is_held_does_not_change_and_other_views_stand_on_it(log: Log) -> None:
    log.append(commit("g", 1, 2_000, ("t", 0)))
    catalog = Catalog(log.root)
    assert catalog.query("SELECT committed_offset FROM committed_offsets").rows == [(1,)]
    catalog.materialize("committed_offsets")
    catalog.materialize("furthest", "SELECT max(committed_offset) AS far FROM committed_offsets")
    held = "SELECT far, committed_offset FROM furthest, committed_offsets"
    assert catalog.query(held).rows == [(1, 1)]
    kind = "SELECT table_type FROM information_schema.tables WHERE table_name = 'committed_offsets'"
    assert catalog.query(kind).rows == [("BASE TABLE",)]


def test_what_is_held_in_the_place_of_a_view_may_be_less_of_it(log: Log) -> None:
    log.append(commit("g", 1, 2_000, ("t", 0)), commit("h", 2, 2_000, ("t", 0)))
    catalog = Catalog(log.root)
    for wanted in (["g", "h"], ["h"]):
        catalog.materialize(
            "committed_offsets",
            "SELECT group_id, committed_offset FROM committed_offsets "
            f"WHERE group_id IN ({', '.join(map(repr, wanted))})",
        )
        assert sorted(catalog.query("FROM committed_offsets").rows) == [
            (name, offset) for name, offset in (("g", 1), ("h", 2)) if name in wanted
        ]


def test_a_query_fetches_no_code_over_the_network(log: Log) -> None:
    asked = "SELECT name FROM duckdb_settings() WHERE name LIKE 'auto%_known_extensions' AND value"
    assert Catalog(log.root).query(asked).rows == []
    with pytest.raises(QueryError, match="httpfs"):
        Catalog(log.root).query("SELECT * FROM read_csv('https://localhost:1/x.csv')")
