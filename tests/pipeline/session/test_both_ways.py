"""The real machine decides the same, whether groups go through pandas or through Arrow alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from msgspec.structs import replace

from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group.batch import (
    BatchResult,
    BatchSettings,
    GroupOutput,
    new_member_uuid,
)
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.pipeline.session import arrow_groups
from group_coordinator.pipeline.stream.stateful import answer
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.schemas.messages import (
    JoinGroupProtocol,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
    RequestEvent,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from group_coordinator.schemas.tables import GROUP_EVENTS, OFFSETS_TOPIC, RESPONSES, to_arrow
from tests.frames import assert_same_rows, frame_of
from tests.golden.record import describe
from tests.pipeline.rows import heartbeat
from tests.pipeline.streams import outputs_of, packed_requests
from tests.roots import make_tables
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

NOW = 1_000_000
WAIT_S = 120.0
MEMBER = f"consumer-{new_member_uuid('joins')}"


class AtOneTime:
    """The machine, for which no time passes: two streams that are asked the same say the same."""

    def __init__(self) -> None:
        config = parse_config({"group.initial.rebalance.delay.ms": 0})
        self._machine = BatchMachine(BatchSettings(config=config))

    def process(self, group_id, state, events: list[str], now: int) -> BatchResult:  # noqa: ARG002
        result = self._machine.process(group_id, state, events, NOW)
        # Spark's clock goes on, and would have timers fire in one stream and not yet in the other.
        return replace(result, deadline=None)

    def set_settings(self, settings: BatchSettings) -> None:
        self._machine.set_settings(settings)


def join(request_id: str, group: str = "grows", member: str = "") -> RequestEvent:
    body = JoinGroupRequest(
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=(JoinGroupProtocol("range", b"\x00\xff"),),
    )
    return RequestEvent(
        request_id, group, "join_group", client_id="consumer", api_version=3, join_group=body
    )


def commit(request_id: str, group: str, offset: int, metadata: str = "") -> RequestEvent:
    partitions = (OffsetCommitPartition(0, offset, committed_metadata=metadata),)
    body = OffsetCommitRequest(topics=(OffsetCommitTopic("orders", partitions),))
    return RequestEvent(request_id, group, "offset_commit", api_version=2, offset_commit=body)


FETCH = OffsetFetchRequest((OffsetFetchTopic("orders", (0, 1)),))
ASSIGNED = (SyncGroupAssignment(MEMBER, b"all of it"),)
SYNC = SyncGroupRequest(1, MEMBER, assignments=ASSIGNED)
LEAVES = LeaveGroupRequest((LeavingMember(MEMBER, None, "done"),))
# One batch each; what the later ones are answered depends on the state that Spark has kept.
STORY = [
    [
        join("joins"),
        heartbeat("of nobody", "none"),
        RequestEvent("no api", "none", "no_such_api"),
        commit("first", "großer Gruß", 7, "Grüße"),
        *(commit(f"many {number}", "long", number) for number in range(25)),
    ],
    [
        RequestEvent(
            "syncs",
            "grows",
            "sync_group",
            sync_group=SyncGroupRequest(1, MEMBER, assignments=ASSIGNED),
        ),
        commit("again", "großer Gruß", 8),
        RequestEvent("fetches", "long", "offset_fetch", offset_fetch=FETCH),
    ],
    [
        join("second joins"),
        join("rejoins", member=MEMBER),
        commit("first", "großer Gruß", 9, "a request that was decided before"),
        describe("grows", "describes"),
    ],
    [RequestEvent("leaves", "grows", "leave_group", leave_group=LEAVES)],
]


def told(spark: SparkSession, root: str, folder: Path, arrow: bool) -> list[GroupOutput]:
    """What the machine says to the whole story, a batch of a stream for each part of it."""
    outputs: list[GroupOutput] = []

    def write(frame, _batch_id: int) -> None:
        outputs.extend(outputs_of(frame))

    make_tables(root)
    requests = RequestLog(root)
    events = packed_requests(spark, root, folder)
    spark.conf.set(arrow_groups.SETTING, str(arrow).lower())
    try:
        stream = answer(events, AtOneTime).writeStream.foreachBatch(write)
        query = stream.option("checkpointLocation", str(folder / "query")).start()
    finally:
        spark.conf.unset(arrow_groups.SETTING)
    try:
        for part in STORY:
            requests.append(part)
            await_answers(query, outputs, part)
    finally:
        query.stop()
    return outputs


def await_answers(
    query: StreamingQuery, outputs: list[GroupOutput], part: list[RequestEvent]
) -> None:
    """Wait for them one by one: a stream with timers is never done with all that is available."""

    def owed() -> set[str]:
        answered = {row.request_id for output in outputs for row in output.responses}
        return {event.request_id for event in part} - answered

    wait_until(
        lambda: f"answers to {owed()}",
        lambda: not owed(),
        WAIT_S,
        # Raises what the query has failed by.
        meanwhile=lambda: query.awaitTermination(0.01),
    )


def tables_of(outputs: list[GroupOutput]) -> dict[str, pa.Table]:
    """The rows that a sink would write, and how each group's timer stands."""
    records = [record for output in outputs for record in output.records]
    segment = pa.array([0] * len(records), pa.int64())
    return {
        "responses": to_arrow(RESPONSES, [row for output in outputs for row in output.responses]),
        "records": to_arrow(OFFSETS_TOPIC, records, {"segment": segment}),
        "events": to_arrow(GROUP_EVENTS, [row for output in outputs for row in output.events]),
        "timers": pa.table({"timer": pa.array([output.timer for output in outputs], pa.binary())}),
    }


def test_both_ways_give_the_same_answers_records_and_events(
    spark: SparkSession, tmp_path: Path
) -> None:
    by_arrow, by_pandas = (
        tables_of(told(spark, str(tmp_path / f"root {arrow}"), tmp_path / str(arrow), arrow))
        for arrow in (True, False)
    )
    asked = [event.request_id for part in STORY for event in part]
    assert sorted(by_arrow["responses"]["request_id"].to_pylist()) == sorted({*asked})
    for name, rows in by_arrow.items():
        assert_same_rows(frame_of(spark, rows), by_pandas[name])
