"""The requests that wait: those that nobody answered or rejected, packed as the stream packs."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from msgspec.structs import replace

from group_coordinator.coordinator.group.partition import PartitionSet, partition_for
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import store_files
from group_coordinator.pipeline.delta import table as opening
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.table_files import Engine, TableFiles
from group_coordinator.pipeline.delta.tail import Position
from group_coordinator.pipeline.node import table_scan, waiting_requests
from group_coordinator.pipeline.node.answered_requests import Answers
from group_coordinator.pipeline.node.load_events import offsets_topic_view
from group_coordinator.pipeline.node.table_scan import open_engine
from group_coordinator.pipeline.node.waiting_requests import (
    MOST,
    RecordedRequests,
    WaitingRequests,
    write_waiting_requests,
)
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.event_tables import request_pages
from group_coordinator.pipeline.stream.offset import Selection
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH, NO_TIME, pack_rows
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import open_table, table_uri
from group_coordinator.schemas.decoding import decode_request, refusal
from group_coordinator.schemas.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
    RejectedRequest,
    RequestEvent,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from group_coordinator.schemas.tables import (
    REJECTED_REQUESTS,
    REQUESTS,
    RESPONSES,
    to_arrow,
    to_requests,
)
from tests.pipeline.damage import damage, newest, spoil, understate
from tests.pipeline.node.target import new_target, with_column
from tests.pipeline.rows import heartbeat, output, response

AWKWARD = 'quotes " and \\ and\nnew\tlines \x00\x1f\x7f, Grüße 🎉 \u2028'

BODIES = {
    "find_coordinator": FindCoordinatorRequest(0),
    "join_group": JoinGroupRequest(
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupProtocol("range", bytes(range(256))), JoinGroupProtocol("b", b"")),
        reason=AWKWARD,
    ),
    "sync_group": SyncGroupRequest(1, "m", None, None, None, (SyncGroupAssignment("m", b"\xff"),)),
    "heartbeat": heartbeat("x").heartbeat,
    "leave_group": LeaveGroupRequest((LeavingMember("m", None, AWKWARD), LeavingMember("", "i"))),
    "offset_commit": OffsetCommitRequest(
        topics=(OffsetCommitTopic("t", (OffsetCommitPartition(0, 2**63 - 1, None, -1, AWKWARD),)),),
    ),
    "offset_fetch": OffsetFetchRequest((OffsetFetchTopic("t", (0, 1)),), True),
    "describe_groups": DescribeGroupsRequest(False),
    "delete_groups": DeleteGroupsRequest(),
    "offset_delete": OffsetDeleteRequest((OffsetDeleteTopic("t", (0,)),)),
}


def requests_of_all_apis() -> list[RequestEvent]:
    good = [
        RequestEvent(f"r-{api}", AWKWARD, api, 3, "c", sent_at=1_700_000_000_000, **{api: body})
        for api, body in BODIES.items()
    ]
    return [
        *good,
        RequestEvent("before 1970", "g", "heartbeat", sent_at=-5, heartbeat=BODIES["heartbeat"]),
        RequestEvent("no time", "g", "heartbeat", principal="p", heartbeat=BODIES["heartbeat"]),
        RequestEvent("no body", "g", "join_group", sent_at=1),
        RequestEvent("no such api", "g", "produce", sent_at=1),
        RequestEvent("no api", "g", None, sent_at=1),
        RequestEvent(None, "g", "heartbeat", sent_at=1, heartbeat=BODIES["heartbeat"]),
        RequestEvent("no group", None, "heartbeat", client_id=AWKWARD),
    ]


def waiting_of(
    root: str, partition_set: PartitionSet | None = None, most: int = MOST
) -> list[tuple[str, str]]:
    with open_engine() as engine:
        waiting = read(engine, root, most)
        target = new_target(engine)
        recorded = RecordedRequests(engine, root, offsets_topic_view(engine, root), None)
        files = write_waiting_requests(waiting, target, partition_set, recorded)
        tables = [pq.read_table(target.local(file)) for file in files]
    return [(row["group_id"], row["event"]) for table in tables for row in table.to_pylist()]


def read(engine: Engine, root: str, most: int) -> WaitingRequests:
    waiting, answers = WaitingRequests(engine, root, most), Answers(engine, 60_000)
    waiting.read_on(
        partial(open_table, root, REQUESTS),
        lambda: answers.read_on(open_table(root, RESPONSES), clock_ms()),
    )
    return waiting


def ids_of(events: list[tuple[str, str]]) -> list[str | None]:
    return sorted(json.loads(event[KEY_WIDTH:]).get("request_id") for _, event in events)


def reject(root: str, *texts: str) -> None:
    rows = [RejectedRequest(5, "no request_id", text) for text in texts]
    Appender(table_uri(root, REJECTED_REQUESTS)).append(to_arrow(REJECTED_REQUESTS, rows))


def test_what_waits_is_packed_as_the_stream_packs_it(root):
    rows = to_requests(requests_of_all_apis())
    Appender(table_uri(root, REQUESTS)).append(rows)
    waiting = waiting_of(root)
    packed = [(row["group_id"], row["event"]) for row in pack_rows(rows).to_pylist()]
    assert sorted(waiting, key=repr) == sorted(packed, key=repr)
    assert {decode_request(event[KEY_WIDTH:]).request_id for _, event in waiting} == {
        request.request_id for request in requests_of_all_apis()
    }


def test_what_was_answered_does_not_wait(root, monkeypatch):
    # Pages and row groups of a few rows each.
    monkeypatch.setattr(table_scan, "_PAGE_ROWS", 7)
    monkeypatch.setattr(waiting_requests, "_ROW_GROUP_BYTES", 500)
    log = RequestLog(root)
    for first in range(0, 1_200, 400):
        log.append([heartbeat(f"r{n}", f"g{n % 3}") for n in range(first, first + 400)])
    Sink(root, CoordinatorSettings()).write([output(1_100)], "test", 0)
    assert ids_of(waiting_of(root)) == [f"r{number}" for number in range(1_100, 1_200)]


def test_the_log_of_records_is_not_read_where_nothing_waits(root):
    RequestLog(root).append([heartbeat("r0", "g"), RequestEvent("nobody", None, "heartbeat")])
    Sink(root, CoordinatorSettings()).write([output(1)], "test", 0)
    with open_engine() as engine:
        read(engine, root, MOST)
        topic: Any = None
        assert RecordedRequests(engine, root, topic, None).count == 0


def test_only_the_requests_of_the_partitions_are_written(root):
    RequestLog(root).append([heartbeat(f"r{n}", f"g{n}") for n in range(10)])
    RequestLog(root).append([RequestEvent("nobody", None, "heartbeat")])
    for partition in range(3):
        expected = [f"r{n}" for n in range(10) if partition_for(f"g{n}", 3) == partition]
        nobody = ["nobody"] if partition == 0 else []
        found = waiting_of(root, PartitionSet({partition}, 3))
        assert ids_of(found) == sorted([*expected, *nobody])


def test_what_names_nobody_waits_until_its_text_is_rejected(root):
    broken = [RequestEvent(None, "g", "heartbeat", client_id=AWKWARD), heartbeat("r", None)]
    RequestLog(root).append(broken)
    both = sorted(event[KEY_WIDTH:] for _, event in waiting_of(root))
    assert len(both) == 2
    reject(root, both[0])
    ((_, left),) = waiting_of(root)
    assert left[KEY_WIDTH:] == both[1]
    reject(root, both[1])
    assert waiting_of(root) == []


def test_strings_that_are_not_utf8_wait_like_any_other(root):
    rows = to_requests([heartbeat("waits"), heartbeat("r0")])
    rows = with_column(rows, "client_id", b"\xff")
    write_deltalake(table_uri(root, REQUESTS), rows, mode="append")
    named = with_column(to_requests([heartbeat("named")]), "group_id", b"caf\xe9")
    write_deltalake(table_uri(root, REQUESTS), named, mode="append")
    Sink(root, CoordinatorSettings()).write([output(1)], "test", 0)
    waiting = dict(waiting_of(root))
    assert waiting.keys() == {"g", "caf\ufffd"}
    assert '"request_id":"waits"' in waiting["g"]
    assert '"client_id":"\ufffd"' in waiting["g"]


def add_file(root: str, rows: pa.Table) -> None:
    """Append a Parquet file as it is, as Delta's protocol lets any writer."""
    handle = open_table(root, REQUESTS)
    with tempfile.TemporaryDirectory() as scratch:
        table = TableFiles(handle, Path(scratch))
        path, local = table.new_file()
        pq.write_table(rows, local)
        added = table.written(path, rows.num_rows)
        assert added is not None
        table.rewrite([], [added])


def test_files_of_other_writers_may_lack_columns_and_have_wider_types(root):
    rows = pa.table(
        {
            "group_id": pa.array(["g", "g"], pa.large_string()),
            "request_id": pa.array(["waits", "r0"], pa.large_string()),
        }
    )
    add_file(root, rows)
    add_file(root, rows.select(["group_id"]).slice(1))
    Sink(root, CoordinatorSettings()).write([output(1)], "test", 0)
    nameless = ("g", NO_TIME + '{"group_id":"g"}')
    waits = ("g", NO_TIME + '{"request_id":"waits","group_id":"g"}')
    assert sorted(waiting_of(root)) == [nameless, waits]


@pytest.mark.slow
def test_ids_of_any_type_wait(root):
    """A file that the stream gets past must not keep a coordinator from starting either."""
    rows = to_requests([heartbeat("a", "g"), heartbeat("b", "h")])
    view = pa.array([{"member_id": "m"}] * 2, pa.struct({"member_id": pa.string_view()}))
    for name, values in (
        ("request_id", pa.array([[1.5], None])),
        ("group_id", pa.array([[1.5], None])),
        ("request_id", pa.array([b"a", b"b"])),
        ("heartbeat", view),
        ("api", pa.array([["x"]] * 2, pa.large_list(pa.string_view()))),
        ("api", pa.array([[("k", "v")]] * 2, pa.map_(pa.string_view(), pa.string_view()))),
    ):
        add_file(root, rows.set_column(rows.schema.get_field_index(name), name, values))
    waiting = waiting_of(root)
    assert [group for group, _ in waiting] == ["g", "h", None, None, *["g", "h"] * 4]
    reject(root, *(event[KEY_WIDTH:] for _, event in waiting[:4]))
    assert ids_of(waiting_of(root)) == ["a"] * 4 + ["b"] * 4


def reject_all(root: str, most: int) -> list[str]:
    """Reject what a group's machine would, of what waits; return the reasons."""
    found = []
    with open_engine() as engine:
        waiting = read(engine, root, most)
        for page in waiting.packed(None):
            for row in page.to_pylist():
                text = row["event"][KEY_WIDTH:]
                if refusal(text) is not None and decode_request(text).request_id is None:
                    reject(root, text)
                    found.append(refusal(text))
    return found


def test_a_file_that_is_no_parquet_file_is_rejected_by_name_once(root):
    RequestLog(root).append([heartbeat("waits")])
    RequestLog(root).append([heartbeat("lost")])
    name = spoil(root)
    (reason,) = reject_all(root, 1 << 20)
    assert reason.startswith(f"{name} is no Parquet file")
    assert ids_of(waiting_of(root)) == ["waits"]
    assert reject_all(root, 1 << 20) == []


def test_a_file_whose_footer_understates_its_pages_is_rejected_by_name_once(root):
    RequestLog(root).append([heartbeat("waits")])
    RequestLog(root).append([with_client(str(number), "x" * 100_000) for number in range(20)])
    understate(newest(root), "client_id")
    (reason,) = reject_all(root, 1 << 20)
    assert reason.startswith(f"{newest(root).name} is no Parquet file")
    assert ids_of(waiting_of(root)) == ["waits"]
    assert reject_all(root, 1 << 20) == []


@pytest.mark.parametrize("path", ["s3://other/file.parquet", "../file.parquet", "/file.parquet"])
def test_a_file_outside_of_the_table_is_rejected_by_name_once(root, path):
    RequestLog(root).append([heartbeat("waits")])
    added = {"path": path, "partitionValues": {}, "size": 9, "modificationTime": 1}
    commit = Path(root, "requests", "_delta_log", f"{2:020}.json")
    commit.write_text(json.dumps({"add": {**added, "dataChange": True}}))
    (reason,) = reject_all(root, 1 << 20)
    assert reason.startswith(f"{path} is no Parquet file")
    assert ids_of(waiting_of(root)) == ["waits"]
    pages = request_pages(1 << 20, Selection(), 1, table_uri(root, REQUESTS), Position(2), None)
    (page, _), *_ = pages
    assert page.events.num_rows == 1


def test_requests_of_a_damaged_row_group_wait_for_their_refusal(root):
    RequestLog(root).append([heartbeat("waits")])
    RequestLog(root).append([heartbeat("lost 1"), heartbeat("lost 2")])
    name = damage(root, "sent_at")
    texts = [event[KEY_WIDTH:] for _, event in waiting_of(root)]
    refused = [refusal(text) for text in texts]
    assert sorted(decode_request(text).request_id for text in texts) == [
        "lost 1",
        "lost 2",
        "waits",
    ]
    assert refused.count(f"row group 0 of {name} cannot be decoded") == 2


def test_a_request_that_is_too_large_is_never_packed_whole(root, monkeypatch):
    packed = []
    monkeypatch.setattr(
        waiting_requests,
        "pack_rows",
        lambda rows, **some: packed.append(rows.nbytes) or pack_rows(rows, **some),
    )
    large = "\x01" * 300_000
    RequestLog(root).append([heartbeat("small"), heartbeat(None), with_client("large", large)])
    with open_engine() as engine:
        waiting = read(engine, root, 1 << 20)
        events = [row["event"] for page in waiting.packed(None) for row in page.to_pylist()]
    by_id = {decode_request(each[KEY_WIDTH:]).request_id: each for each in events}
    assert "more than max.request.size, which is 1048576" in by_id["large"]
    assert len(by_id) == 3
    assert max(packed) < 10_000


def test_a_large_request_with_a_long_id_is_rejected_once(root):
    RequestLog(root).append(
        [with_client("i" * 40_000, "x" * 100_000), heartbeat("r", "g" * 40_000)]
    )
    (reason,) = reject_all(root, 100_000)
    assert "more than max.request.size" in reason
    assert ids_of(waiting_of(root, most=100_000)) == ["r"], "it is not too large to be answered"
    assert reject_all(root, 100_000) == []


def test_a_request_with_a_long_id_that_was_answered_does_not_wait(root):
    long_id = "i" * 40_000
    RequestLog(root).append([heartbeat(long_id), heartbeat("r" + long_id)])
    answers = output()
    answers.responses.append(response(long_id))
    Sink(root, CoordinatorSettings()).write([answers], "test", 0)
    assert ids_of(waiting_of(root)) == ["r" + long_id]


def with_client(request_id: str, client_id: str) -> RequestEvent:
    return replace(heartbeat(request_id), client_id=client_id)


@pytest.fixture
def elsewhere(monkeypatch):
    """Have every table read and written as one that is not on a local disk."""
    monkeypatch.setattr("group_coordinator.pipeline.delta.table_files.local_folder", lambda _: None)
    monkeypatch.setattr(
        "group_coordinator.pipeline.node.answered_requests.local_folder", lambda _: None
    )
    for module in (store_files, opening):
        monkeypatch.setattr(module, "local_folder", lambda _: None)


def test_elsewhere_than_on_a_local_disk_the_same_requests_wait(root, elsewhere):
    RequestLog(root).append([heartbeat(f"r{number}") for number in range(20)])
    Sink(root, CoordinatorSettings()).write([output(15)], "test", 0)
    assert ids_of(waiting_of(root)) == [f"r{number}" for number in range(15, 20)]
