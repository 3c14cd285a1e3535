"""Rows to write, and functions that read a table."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from group_coordinator.coordinator.group.batch import GroupOutput
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.schemas.messages import (
    HeartbeatRequest,
    RejectedRequest,
    RequestEvent,
    Response,
)
from group_coordinator.schemas.records import (
    OFFSET_COMMIT,
    CoordinatorRecord,
    GroupEvent,
    OffsetCommitValue,
)
from group_coordinator.schemas.tables import TABLES


def heartbeat(request_id: str, group_id: str = "g", sent_at: int | None = 5) -> RequestEvent:
    body = HeartbeatRequest(1, "m")
    return RequestEvent(request_id, group_id, "heartbeat", sent_at=sent_at, heartbeat=body)


def response(request_id: str) -> Response:
    return Response(request_id, "g", "heartbeat", 0, "NONE", responded_at=5)


def commit_record(partition: int, offset: int) -> CoordinatorRecord:
    value = OffsetCommitValue(offset, -1, "", 5)
    return CoordinatorRecord(
        partition, OFFSET_COMMIT, "g", 5, topic="t", topic_partition=0, offset_commit=value
    )


def output(
    responses: int = 0,
    records: list[CoordinatorRecord] | None = None,
    events: int = 0,
    rejected: int = 0,
) -> GroupOutput:
    return GroupOutput(
        [response(f"r{i}") for i in range(responses)],
        records or [],
        [GroupEvent(5, "g", "member_joined") for _ in range(events)],
        [RejectedRequest(5, "no request_id", "{}") for _ in range(rejected)],
    )


def rows(root: str, name: str) -> list[dict[str, Any]]:
    return open_table(root, TABLES[name]).to_pyarrow_table().to_pylist()


def counts(root: str) -> dict[str, int]:
    names = ("offsets_topic", "group_events", "rejected_requests", "responses")
    return {name: len(rows(root, name)) for name in names}


def version(root: str, name: str) -> int:
    return DeltaTable(f"{root}/{name}").version()
