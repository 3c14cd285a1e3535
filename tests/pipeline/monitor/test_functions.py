"""What clients choose, bytes and numbers, breaks no view: the functions that views compute with."""

from __future__ import annotations

import struct
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
from group_coordinator.pipeline.monitor.view_text import read_statements
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.topics.logs import appender, batch, make

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
PARTITIONS = st.lists(
    st.builds(TopicPartition, st.text(max_size=5), INT32), unique=True, max_size=8
)
ENCODED = st.builds(
    lambda partitions, data: encode_assignment(Assignment(tuple(partitions), data)),
    PARTITIONS,
    st.none() | st.binary(max_size=5),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An assignment with some of its bytes replaced, left out or put in."""
    whole = draw(ENCODED)
    begin = draw(st.integers(0, len(whole)))
    end = draw(st.integers(begin, min(len(whole), begin + 6)))
    return whole[:begin] + draw(st.binary(max_size=6)) + whole[end:]


BYTES = ENCODED | damaged() | st.binary(max_size=60)


@cache
def functions() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    for statement in read_statements("duckdb_functions.sql").values():
        connection.execute(statement.sql)
    return connection


def by_member(blob: bytes) -> list[tuple[str, int]] | None:
    """What the member reads; nothing of no bytes, None of what is no assignment."""
    try:
        return [tuple(each) for each in decode_assignment(blob).partitions] if blob else []
    except ProtocolError:
        return None


@example([struct.pack(">hii", 0, 0, -(2**31))])
@given(st.lists(BYTES, min_size=1, max_size=10))
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
