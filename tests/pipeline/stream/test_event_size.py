"""What an event's size is told to be before it is packed is its size."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH, pack_rows
from group_coordinator.pipeline.stream.request_pages import event_sizes
from group_coordinator.schemas.messages import (
    JoinGroupProtocol,
    JoinGroupRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchRequest,
    RequestEvent,
)
from group_coordinator.schemas.tables import to_requests
from tests.pipeline.rows import heartbeat
from tests.pipeline.stream.test_packing import OF_MANY_KINDS

EVERY_CHARACTER = "".join(map(chr, range(0x180))) + "漢😀"


def committed(*metadata: str | None) -> RequestEvent:
    partitions = tuple(
        OffsetCommitPartition(number, -(10**number), committed_metadata=text)
        for number, text in enumerate(metadata)
    )
    topics = (OffsetCommitTopic("a", partitions), OffsetCommitTopic("none", ()))
    return RequestEvent("c", "g", "offset_commit", offset_commit=OffsetCommitRequest(topics=topics))


EVENTS = [
    *OF_MANY_KINDS,
    heartbeat(EVERY_CHARACTER, EVERY_CHARACTER, sent_at=-1),
    committed("m", None, EVERY_CHARACTER),
    committed(),
    RequestEvent("f", "g", "offset_fetch", offset_fetch=OffsetFetchRequest()),
    *(
        RequestEvent(
            "j",
            "g",
            "join_group",
            join_group=JoinGroupRequest(
                session_timeout_ms=1,
                protocol_type="",
                protocols=(JoinGroupProtocol("p", b"x" * length),),
            ),
        )
        for length in range(5)
    ),
]


def packed_sizes(rows: pa.Table) -> list[int]:
    return pc.subtract(pc.binary_length(pack_rows(rows).column("event")), KEY_WIDTH).to_pylist()


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_s_size_is_told(event: RequestEvent):
    rows = to_requests([event])
    assert event_sizes(rows).to_pylist() == packed_sizes(rows)


def test_the_sizes_of_many_events_are_told():
    rows = to_requests(EVENTS)
    assert event_sizes(rows).to_pylist() == packed_sizes(rows)


def test_rows_without_anything_have_a_size():
    rows = pa.table({"request_id": pa.nulls(2, pa.string())})
    assert event_sizes(rows).to_pylist() == [2, 2]


def test_strings_read_as_dictionaries_have_the_same_size(tmp_path):
    rows = to_requests(EVENTS)
    pq.write_table(rows, tmp_path / "file")
    group = pq.ParquetFile(tmp_path / "file").metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    strings = [each.path_in_schema for each in columns if each.physical_type == "BYTE_ARRAY"]
    read = pq.ParquetFile(tmp_path / "file", read_dictionary=strings).read()
    assert pa.types.is_dictionary(read.schema.field("request_id").type)
    assert event_sizes(read).to_pylist() == packed_sizes(rows)
