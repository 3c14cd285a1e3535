"""Rows of a DataFrame become requests, or are refused with their column before a commit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from group_coordinator.coordinator.signatures import Signatures
from group_coordinator.pipeline.delta import Position, appended, open_files
from group_coordinator.pipeline.spark import request_writer
from group_coordinator.pipeline.spark.request_rows import InvalidRequest, check_columns
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH, pack_rows, unpack
from group_coordinator.pipeline.tables.request_keys import add_key, new_key, read_keys
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.decoding import decode_request
from group_coordinator.schemas.messages import (
    HeartbeatRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    RequestEvent,
)
from group_coordinator.schemas.tables import REQUESTS
from tests.pipeline.spark.tasks import (
    SCHEMA,
    arrow,
    batch_writer,
    commits,
    fetch,
    files,
    stored,
    stream_writer,
    task,
    written,
)

COMMIT = (
    '{"topics": [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 7}]}]}'
)
HEARTBEAT = {"member_id": "m", "generation_id": 3}


def events(root: str) -> list[RequestEvent]:
    """Return the requests as a coordinator decodes them."""
    files_of = open_files(table_uri(root, REQUESTS))
    pages = appended(files_of, Position(1), REQUESTS.schema.names)
    packed = [pack_rows(page, first=0) for page, _ in pages if page is not None]
    texts = [text for page in packed for text in page.column("event").to_pylist()]
    decoded = [decode_request(text[KEY_WIDTH:]) for text in texts]
    assert all(isinstance(each, RequestEvent) for each in decoded), decoded
    return decoded  # type: ignore[return-value]


def write(root: str, *rows: dict[str, Any], **options: str) -> None:
    writer = batch_writer(root, **options)
    writer.commit(written(writer, rows))


def with_column(name: str, kind: DataType) -> StructType:
    others = [field for field in SCHEMA if field.name != name]
    return StructType([*others, StructField(name, kind)])


def test_a_body_as_json_and_a_body_as_a_struct_are_the_same_request(root: str) -> None:
    as_json = fetch("a", api="heartbeat", body='{"member_id": "m", "generation_id": 3}')
    as_struct = fetch("b", api="heartbeat", body=None, heartbeat=HEARTBEAT)
    write(root, as_json, as_struct)
    assert [event.heartbeat for event in events(root)] == [HeartbeatRequest(3, "m")] * 2


def test_a_nested_body_as_json_is_decoded_as_a_coordinator_decodes_it(root: str) -> None:
    write(root, fetch("a", api="offset_commit", body=COMMIT, api_version=8))
    (event,) = events(root)
    partitions = (OffsetCommitPartition(partition_index=0, committed_offset=7),)
    body = OffsetCommitRequest(topics=(OffsetCommitTopic("t", partitions),))
    assert (event.api_version, event.offset_commit) == (8, body)


def test_missing_ids_are_made_of_the_prefix_and_the_row_s_place(root: str) -> None:
    writer = batch_writer(root, requestIdPrefix="p")
    rows = [fetch(None), fetch("given"), fetch(None)]
    with task(4):
        message = writer.write(iter([arrow(rows), arrow(rows[:1])]))
    writer.commit([message])
    assert [row["request_id"] for row in stored(root)] == ["p-4-0", "given", "p-4-2", "p-4-3"]


def test_a_batch_that_is_run_again_has_the_same_ids(root: str) -> None:
    made = []
    for _ in range(2):
        writer = stream_writer(root, requestIdPrefix="p")
        with task(1, batch=6):
            made.append(writer.write(iter([arrow([fetch(None)] * 2)])))
    writer.commit(made[:1], 6)
    first = [row["request_id"] for row in stored(root)]
    assert first == ["p-6-1-0", "p-6-1-1"]
    stream_writer(root, txnAppId="another").commit(made[1:], 6)
    assert [row["request_id"] for row in stored(root)] == first * 2


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (fetch(None), r"request None: column request_id: it is null"),
        (fetch("a", None), r"request 'a': column group_id: it is null"),
        (fetch("a", api=None), r"column api: it is null"),
        (fetch("a", api="offset_fetchh"), r"column api: unknown api 'offset_fetchh'"),
        (fetch("a", api_version=99), r"column api_version: api_version 99 .* outside"),
        (fetch("a", body=None), r"column offset_fetch: .* no offset_fetch body"),
        (fetch("a", body="{"), r"column body: "),
        (fetch("a", body='{}, "principal": "User:admin"'), r"column body: .*trailing characters"),
        (fetch("a", body='{"topics": 7}'), r"column body: Expected .* `\$.topics`"),
        (fetch("a", heartbeat=HEARTBEAT), r"column heartbeat: .* api names another body"),
        (
            fetch("a", api="heartbeat", heartbeat=HEARTBEAT),
            r"column body: heartbeat has the body already",
        ),
        (
            fetch("a", api="heartbeat", body=None, heartbeat={"member_id": "m"}),
            r"column heartbeat: .* missing required field `generation_id`",
        ),
    ],
)
def test_an_invalid_row_is_refused_with_its_column_and_leaves_no_file(
    root: str, row: dict[str, Any], why: str
) -> None:
    before = files(root)
    writer = batch_writer(root)
    with pytest.raises(InvalidRequest, match=rf"row 1 of task 0, {why}|row 1 of task 0, .*{why}"):
        written(writer, [fetch("valid"), row])
    assert files(root) == before
    assert commits(root) == 0


def test_a_failed_task_deletes_the_files_that_it_has_written(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_writer, "ROW_GROUP_BYTES", 1)
    writer = batch_writer(root)
    batches = [arrow([fetch("a")]), arrow([fetch("b")]), arrow([fetch("c", api="none")])]
    with task(0):
        two = writer.write(iter(batches[:2]))
        assert len(two.files) == 2
        with pytest.raises(InvalidRequest, match="row 2 of task 0"):
            writer.write(iter(batches))
    assert files(root) == 2


def test_a_request_larger_than_the_limit_is_refused(root: str) -> None:
    large = fetch("a", "ü" * 500)
    write(root, large, maxRequestSize="1100")
    with pytest.raises(InvalidRequest, match=r"column offset_fetch: the request takes 1\d+ bytes"):
        write(root, large, maxRequestSize="1000")


def test_requests_are_signed_by_the_key_of_the_option(root: str, tmp_path: Path) -> None:
    key = new_key("alice", "User:alice")
    path = tmp_path / "alice-key"
    add_key(path, key)
    write(root, fetch("a"), requestKeyFile=str(path))
    (event,) = events(root)
    verified = Signatures(read_keys(path)).verify(event)
    assert (event.principal, verified.signer, verified.problem) == ("User:alice", "alice", None)


# --- order ----------------------------------------------------------------------------------------


def test_a_take_over_finds_the_order_of_tasks_and_rows(root: str) -> None:
    """The ids descend, because a take-over orders the events of a microsecond by their text."""
    writer = batch_writer(root)
    names = [f"{number:04}" for number in range(2000, 0, -1)]
    tasks = [[fetch(name) for name in names[at : at + 500]] for at in range(0, 2000, 500)]
    writer.commit(written(writer, *tasks))
    pages = [
        pack_rows(page)
        for page, _ in appended(
            open_files(table_uri(root, REQUESTS)), Position(1), REQUESTS.schema.names
        )
        if page is not None
    ]
    texts = [text for page in pages for text in page.column("event").to_pylist()]
    found = [decode_request(text).request_id for text in unpack(texts[::-1])]
    assert found == names


def test_the_sent_at_of_a_row_is_kept_in_microseconds(root: str) -> None:
    at = datetime(2026, 11, 27, 12, 0, 0, 123_456, tzinfo=UTC)
    write(root, fetch("a", sent_at=at), fetch("b"))
    first, second = stored(root)
    assert first["sent_at"] == at
    assert second["sent_at"] > at


# --- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (with_column("sent_at", TimestampNTZType()), "sent_at is timestamp_ntz, not a timestamp"),
        (with_column("api_version", StringType()), "api_version is string, not an integer"),
        (with_column("offset", LongType()), "column offset is unknown"),
        (
            with_column("heartbeat", StructType([StructField("member", StringType())])),
            "column heartbeat.member is unknown",
        ),
        (with_column("heartbeat", StringType()), "heartbeat is string, not a struct"),
        (
            with_column(
                "leave_group",
                StructType(
                    [StructField("members", ArrayType(StructType([StructField("id", LongType())])))]
                ),
            ),
            "column leave_group.members.id is unknown",
        ),
        (StructType([field for field in SCHEMA if field.name != "api"]), "column api is missing"),
        (StructType([*SCHEMA, SCHEMA["body"]]), "column body is there 2 times"),
    ],
)
def test_a_wrong_column_is_refused_before_the_tasks(schema: StructType, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        check_columns(schema, has_prefix=False)


def test_integers_of_any_width_and_columns_of_nulls_are_accepted() -> None:
    check_columns(with_column("api_version", ByteType()), has_prefix=False)
    check_columns(with_column("heartbeat", NullType()), has_prefix=False)


def test_a_schema_without_ids_needs_a_prefix() -> None:
    schema = StructType([field for field in SCHEMA if field.name != "request_id"])
    check_columns(schema, has_prefix=True)
    with pytest.raises(InvalidRequest, match="column request_id is missing"):
        check_columns(schema, has_prefix=False)
