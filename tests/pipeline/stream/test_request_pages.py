"""What somebody writes to `requests` costs a bounded read, and what is too large is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from group_coordinator.pipeline.delta.tail import Position, RowGroups
from group_coordinator.pipeline.stream import request_pages
from group_coordinator.pipeline.stream.event_tables import request_pages as pages_of_table
from group_coordinator.pipeline.stream.offset import Selection
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH, pack_rows, pack_together
from group_coordinator.pipeline.stream.request_pages import LONGEST_ID, event_sizes, read_pages
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.decoding import REFUSED, Malformed, decode_request
from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.tables import REQUESTS, to_requests
from tests.pipeline.damage import newest, understate
from tests.pipeline.rows import heartbeat

MOST = 10_000


@pytest.fixture
def read(tmp_path: Path):
    """Write rows as a file of one row group, and read it from a row on."""

    def read_rows(rows: pa.Table, first: int = 0, **written) -> list[pa.Table]:
        path = tmp_path / "file.parquet"
        pq.write_table(rows, path, **written)
        with pa.OSFile(str(path)) as file:
            group = RowGroups(file, pq.ParquetFile(file), [0])
            return list(read_pages(group, REQUESTS.schema.names, first, MOST))

    return read_rows


def decoded(pages: list[pa.Table]) -> list[RequestEvent | Malformed]:
    texts = [text for page in pages for text in pack_rows(page, 1).column("event").to_pylist()]
    return [decode_request(text[KEY_WIDTH:]) for text in texts]


def large(request_id: str, client_id: str, group_id: str = "g") -> RequestEvent:
    return RequestEvent(request_id, group_id, "heartbeat", client_id=client_id, sent_at=5)


def ids(pages: list[pa.Table]) -> list[str]:
    return [each for page in pages for each in page.column("request_id").to_pylist()]


def test_an_ordinary_row_group_is_one_page(read):
    rows = to_requests([heartbeat(str(number)) for number in range(50)])
    (page,) = read(rows)
    assert page.to_pylist() == rows.to_pylist()
    (page,) = read(rows, first=40)
    assert page.to_pylist() == rows.slice(40).to_pylist()


def test_a_large_row_group_is_many_pages(read, monkeypatch):
    monkeypatch.setattr(request_pages, "PAGE_BYTES", 20_000)
    rows = to_requests([heartbeat(str(number)) for number in range(500)])
    pages = read(rows)
    assert len(pages) > 5
    assert [row for page in pages for row in page.to_pylist()] == rows.to_pylist()
    for first in (1, 77, 499, 500):
        assert ids(read(rows, first)) == [str(number) for number in range(first, 500)]


@pytest.mark.parametrize("text", ["x" * MOST, "\x01" * (MOST // 6), '"' * (MOST // 2), "é" * MOST])
def test_a_request_that_is_too_large_is_refused_and_no_other(read, text):
    rows = to_requests([heartbeat("before"), large("large", text), heartbeat("after")])
    pages = read(rows)
    before, refused, after = decoded(pages)
    assert (before.request_id, after.request_id) == ("before", "after")
    assert isinstance(refused, Malformed)
    size = event_sizes(rows).to_pylist()[1]
    reason = f"the request takes {size} bytes, more than max.request.size, which is {MOST}"
    assert refused == Malformed("large", "g", "heartbeat", reason)
    assert ids(read(rows, first=1)) == ["large", "after"]
    assert ids(read(rows, first=2)) == ["after"]


def test_a_request_of_the_largest_size_is_taken(read):
    room = MOST - event_sizes(to_requests([large("r", "")])).to_pylist()[0]
    (taken,) = decoded(read(to_requests([large("r", "x" * room)])))
    assert taken.message == "api is 'heartbeat' but there is no heartbeat body"
    (refused,) = decoded(read(to_requests([large("r", "x" * (room + 1))])))
    assert "more than max.request.size" in refused.message


def test_ids_that_are_too_long_name_nobody(read):
    (refused,) = read(to_requests([large("r" * (LONGEST_ID + 1), "", "g" * (LONGEST_ID + 1))]))
    (row,) = refused.to_pylist()
    assert (row["request_id"], row["group_id"], row["api"]) == (None, None, "heartbeat")
    (refused,) = read(to_requests([large("r", "", "g" * LONGEST_ID)]))
    assert refused.to_pylist()[0]["group_id"] == "g" * LONGEST_ID


def test_a_text_that_is_repeated_is_measured_before_it_is_copied(read, monkeypatch):
    monkeypatch.setattr(request_pages, "PAGE_BYTES", 100_000)
    monkeypatch.setattr(request_pages, "UNFOLDED_BYTES", 100_000)
    text = "m" * 5_000
    rows = to_requests([large(str(number), text) for number in range(1_000)])
    pages = read(rows)
    assert ids(pages) == [str(number) for number in range(1_000)]
    assert all(sum(event_sizes(page).to_pylist()) <= 100_000 for page in pages)
    assert all(pa.types.is_dictionary(page.schema.field("client_id").type) for page in pages)
    assert decoded(pages[:1])[0].request_id == "0"


def test_a_row_group_beyond_all_bounds_is_refused_unread(read, monkeypatch):
    monkeypatch.setattr(request_pages, "UNREADABLE_BYTES", 100_000)
    rows = to_requests([heartbeat("a"), large("b", "x" * 100_000), heartbeat("c")])
    first, second, third = decoded(read(rows))
    assert [each.request_id for each in (first, second, third)] == ["a", "b", "c"]
    assert "not read: its row group takes" in first.message
    assert [each.request_id for each in decoded(read(rows, first=2))] == ["c"]


def test_a_list_of_nulls_is_as_large_as_it_is_long(read, monkeypatch):
    monkeypatch.setattr(request_pages, "UNREADABLE_BYTES", 100_000)
    monkeypatch.setattr(request_pages, "PAGE_BYTES", 10_000)
    kind = REQUESTS.schema.field("offset_fetch").type
    body = {"topics": [None] * 1_000_000}
    rows = pa.table(
        {
            "request_id": ["r"],
            "group_id": ["g"],
            "api": ["offset_fetch"],
            "offset_fetch": pa.array([body], kind),
        }
    )
    (refused,) = decoded(read(rows))
    assert refused.request_id == "r"
    assert "not read" in refused.message


def test_ids_that_are_beyond_all_bounds_are_not_read_either(read, monkeypatch):
    monkeypatch.setattr(request_pages, "UNREADABLE_BYTES", 100_000)
    monkeypatch.setattr(request_pages, "PAGE_BYTES", 10_000)
    rows = to_requests([large("r" * 200_000, "")])
    (page,) = read(rows)
    assert page.to_pylist()[0]["group_id"] == "g"
    assert page.to_pylist()[0]["request_id"] is None
    (page,) = read(rows.select(["request_id"]))
    assert page.column(REFUSED).to_pylist()[0].startswith("the request was not read")


def test_a_file_whose_footer_understates_its_pages_is_one_rejected_request(root, monkeypatch):
    RequestLog(root).append([large(str(number), "m" * 100_000) for number in range(300)])
    name = newest(root).name
    understate(newest(root), "client_id")

    def unfolded(*_, **__):
        raise AssertionError("the texts are copied")

    monkeypatch.setattr("group_coordinator.pipeline.stream.event_tables.read_pages", unfolded)
    pages = pages_of_table(MOST, Selection(), 1, table_uri(root, REQUESTS), Position(1), None)
    (page, after), *_ = pages
    assert after == Position(1, 1)
    (packed,) = pack_together([page.events])
    (event,) = packed.to_pylist()
    assert f"{name} is no Parquet file" in event["event"]
