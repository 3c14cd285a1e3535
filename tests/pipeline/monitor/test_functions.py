"""What clients choose, bytes and numbers, breaks no view: the functions that views compute with."""

from __future__ import annotations

import struct
import tempfile
from functools import cache

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    ProtocolError,
    TopicPartition,
    decode_assignment,
    encode_assignment,
)
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.monitor.view_statements import read_statements
from group_coordinator.schemas.records import CoordinatorRecord
from tests.examples import examples
from tests.pipeline.hostile import ASSIGNMENTS, INT64, RECORDS, stored_members
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.topics.logs import appender, batch, make


@cache
def functions() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    for statement in read_statements("duckdb_functions.sql").values():
        connection.execute(statement.sql)
    return connection


def by_member(blob: bytes) -> list[tuple[str, int]] | None:
    """Return the member's partitions; none without bytes, None for an invalid assignment."""
    try:
        return [tuple(each) for each in decode_assignment(blob).partitions] if blob else []
    except ProtocolError:
        return None


@example([struct.pack(">hii", 0, 0, -(2**31))])
@given(st.lists(ASSIGNMENTS, min_size=1, max_size=10))
def test_any_bytes_are_decoded_as_their_member_decodes_them(blobs: list[bytes]) -> None:
    asked = "SELECT decode_assignment(unnest(?::BLOB[]))"
    rows = functions().execute(asked, [blobs]).fetchall()
    flat = [
        None if topics is None else [(t["topic"], n) for t in topics for n in t["partitions"]]
        for (topics,) in rows
    ]
    assert flat == [by_member(blob) for blob in blobs]


@pytest.mark.parametrize("tail", [b"\0", b"\xff"])
def test_a_megabyte_of_nonsense_is_no_more_work_than_its_length(tail: bytes) -> None:
    """DuckDB copied it once for each topic that it might have: a few hours, for these."""
    blob = struct.pack(">hi", 0, 150_000) + tail * 1_000_000
    assert functions().execute("SELECT decode_assignment(?)", [blob]).fetchone() == (None,)


def test_a_partitions_numbers_are_looked_up_and_not_searched_for() -> None:
    count = 200_000
    blob = encode_assignment(Assignment(tuple(TopicPartition("t", n) for n in range(count))))
    asked = "SELECT decode_assignment(?)[1].partitions"
    assert functions().execute(asked, [blob]).fetchone() == ([*range(count)],)


@given(INT64)
def test_any_number_is_a_time_or_none(ms: int) -> None:
    ((found,),) = functions().execute("SELECT as_time(?::BIGINT)", [ms]).fetchall()
    assert (found is not None) == (-62_135_596_800_000 <= ms <= 253_370_764_799_999)


EXTREMES = [-(2**63), -1, 0, 1, 2**63 - 1]


@pytest.mark.parametrize("view", ["lag", "lag_history", "verdicts", "group_verdicts", "groups"])
def test_any_offset_that_is_committed_hides_no_other_group(root: str, view: str) -> None:
    log = Log(root)
    log_appender = appender(make(root))
    for number in range(3):
        log_appender.append([batch(number, "a", "b", at=10**14), batch(number, "c", at=-(10**13))])
    for offset in EXTREMES:
        places = [("t", number) for number in range(3)]
        log.append(*(commit(f"g{offset}", offset, 2_000, place) for place in places))
    rows = Catalog(root).query(f"FROM {view}").as_dicts()
    assert {row["group_id"] for row in rows} == {f"g{offset}" for offset in EXTREMES}


@pytest.mark.full
@examples(4)
@given(st.lists(RECORDS, min_size=10, max_size=60))
def test_whatever_clients_choose_every_view_is_answered(records: list[CoordinatorRecord]) -> None:
    """And the group of another client is shown in those that would show it."""
    with tempfile.TemporaryDirectory() as root:
        log = Log(root)
        appender(make(root)).append([batch(0, *"abc"), batch(1, "d")])
        plain = [commit("plain", 1, 2_000), stored_members("plain", [_encoded(("t", 0))])]
        log.append(*records, *plain)
        catalog = Catalog(root)
        for view in catalog.names():
            rows = catalog.query(f"FROM {view}").as_dicts()
            if view in _SHOW_PLAIN:
                assert [row for row in rows if row["group_id"] == "plain"], view
        catalog.close()


# Each shows a row for the group `plain`.
_SHOW_PLAIN = (
    "committed_offsets",
    "group_members",
    "group_overview",
    "group_partitions",
    "group_states",
    "group_topics",
    "group_verdicts",
    "groups",
    "lag",
    "lag_history",
    "member_partitions",
    "newest_records",
    "offset_history",
    "owned_lag",
    "verdicts",
)


def _encoded(*partitions: tuple[str, int]) -> bytes:
    return encode_assignment(Assignment(tuple(TopicPartition(*each) for each in partitions)))
