"""A coordinator of this release starts on a copy of a golden root, and continues there."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from group_coordinator.coordinator.group.group_snapshot import decode
from group_coordinator.pipeline.node.node import start
from group_coordinator.pipeline.node.resumption import checkpoint_uri, stream_uri
from group_coordinator.pipeline.session.checkpoint_files import last_planned
from group_coordinator.pipeline.stream.spark_engine import SparkEngine
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.schemas.messages import (
    JoinGroupProtocol,
    JoinGroupRequest,
    OffsetFetchResponse,
    RequestEvent,
    Response,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from group_coordinator.schemas.tables import RESPONSES, from_arrow
from tests.golden.record import (
    HERE,
    NODE_ID,
    Golden,
    describe,
    fetch,
    heartbeat,
    read,
    releases,
    said,
    settings,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(600)]

WAIT_S = 120.0
# The offset of the commit that waits in the tables: `tests.golden.write.unanswered`.
LATE = ("orders", 2, 99)


def asked_of(golden: Golden) -> list[RequestEvent]:
    """Return requests to all groups for the data in the record."""
    asked = []
    for group_id, group in golden.groups.items():
        asked += [describe(group_id, f"describe {group_id}"), fetch(group_id, f"fetch {group_id}")]
        for number, beat in enumerate(group.heartbeats):
            asked.append(heartbeat(group_id, f"beat {number} {group_id}", beat.body))
    return asked


def complete(golden: Golden) -> list[RequestEvent]:
    """Return requests that complete the pending rebalances: a join and the leader's sync."""
    preparing = decode(golden.groups["preparing"].state).group
    completing = decode(golden.groups["completing"].state).group
    assert preparing is not None and completing is not None
    first = next(iter(preparing.members.values()))
    join = JoinGroupRequest(
        session_timeout_ms=first.session_timeout_ms,
        member_id=first.member_id,
        protocol_type="consumer",
        protocols=tuple(JoinGroupProtocol(p.name, p.metadata) for p in first.protocols),
    )
    leader = completing.leader_id or ""
    assigned = tuple(SyncGroupAssignment(each, b"yours") for each in completing.members)
    sync = SyncGroupRequest(completing.generation_id, leader, assignments=assigned)
    return [
        RequestEvent("rejoins", "preparing", "join_group", api_version=3, join_group=join),
        RequestEvent("leads", "completing", "sync_group", api_version=3, sync_group=sync),
    ]


def await_answers(root: str, ids: set[str]) -> dict[str, Response]:
    """Return the responses to these requests; each was answered once."""

    def answers() -> list[Response]:
        rows = from_arrow(Response, open_table(root, RESPONSES).to_pyarrow_table())
        return [row for row in rows if row.request_id in ids]

    def owed() -> set[str]:
        return ids - {row.request_id for row in answers()}

    wait_until(lambda: f"answers to {owed()}", lambda: not owed(), WAIT_S, every_s=0.2)
    rows = answers()
    assert sorted(row.request_id for row in rows) == sorted(ids)
    return {row.request_id: row for row in rows}


def offsets_of(answer: OffsetFetchResponse | None) -> dict[tuple[str, int], int]:
    assert answer is not None
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("release", releases())
def test_a_coordinator_goes_on_where_the_release_stopped(
    spark, release: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    golden = read(release)
    root = str(tmp_path / "root")
    shutil.copytree(HERE / release / "root", root)
    with caplog.at_level("INFO"):
        node = start(SparkEngine(spark, root, settings().coordinator), root, settings())
    try:
        node.await_ready(WAIT_S)
        assert [each for each in caplog.messages if "took over" in each] == [], "it begins afresh"
        late = {event.request_id: event for event in golden.unanswered}
        answers = await_answers(root, late.keys())
        assert [answers[each].error_code for each in late] == [0, 0, 25]
        asked = asked_of(golden)
        RequestLog(root).append(asked)
        answers = await_answers(root, {event.request_id for event in asked})
        for group_id, group in golden.groups.items():
            assert said(answers[f"describe {group_id}"]) == group.live.describe, group_id
            fetched = offsets_of(answers[f"fetch {group_id}"].offset_fetch)
            expected = offsets_of(group.live.fetch.offset_fetch)
            if group_id == "stable":
                topic, partition, offset = LATE
                expected[topic, partition] = offset
            assert fetched == expected, group_id
            for number, beat in enumerate(group.heartbeats):
                assert answers[f"beat {number} {group_id}"].error_code == beat.error_code, beat
        RequestLog(root).append(complete(golden))
        answers = await_answers(root, {"rejoins", "leads", *golden.parked})
        assert {answer.error for answer in answers.values()} == {"NONE"}, "who waited has an answer"
        (folder,) = Path(checkpoint_uri(root, NODE_ID)).iterdir()
        stream = stream_uri(str(folder))
        query = msgspec.json.decode(Path(stream, "metadata").read_bytes())["id"]
        planned = last_planned(spark, stream)
        assert query == golden.query, "it is the same query"
        assert planned is not None and planned[0] > golden.last_batch
        node.stop()
    finally:
        node.abandon()
