"""A node is killed between a request's records and its answer; the next one answers by them."""

from __future__ import annotations

import msgspec
import pytest
from deltalake import DeltaTable

from group_coordinator.coordinator.group.batch import GroupOutput
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.group.partition import PartitionSet, partition_for
from group_coordinator.pipeline.node.bootstrap import prepare_bootstrap
from group_coordinator.pipeline.settings import CoordinatorSettings, UpkeepSettings
from group_coordinator.pipeline.stream.packed_events import FIRST_KEY, KEY_WIDTH, unpack
from group_coordinator.pipeline.stream.request_pages import refuse_packed
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.schemas.decoding import decode_request
from group_coordinator.schemas.messages import (
    DeleteGroupsRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    RequestEvent,
)
from tests.pipeline.rows import heartbeat

NOW = 1_700_000_000_000
AWKWARD = 'quotes " and \\ and\nnew\tlines \x00, Grüße 🎉 \u2028'


def request(request_id: str, api: str, body: msgspec.Struct, group_id: str = "g") -> RequestEvent:
    return RequestEvent(request_id, group_id, api, sent_at=NOW, **{api: body})


def commit(request_id: str, *offsets: int, group_id: str = "g", topic: str = "t") -> RequestEvent:
    partitions = tuple(OffsetCommitPartition(n, offset) for n, offset in enumerate(offsets))
    body = OffsetCommitRequest(topics=(OffsetCommitTopic(topic, partitions),))
    return request(request_id, "offset_commit", body, group_id)


def offset_delete(request_id: str, *partitions: int) -> RequestEvent:
    body = OffsetDeleteRequest((OffsetDeleteTopic("t", partitions),))
    return request(request_id, "offset_delete", body)


def delete(request_id: str) -> RequestEvent:
    return request(request_id, "delete_groups", DeleteGroupsRequest())


class Node:
    """A node that is killed in the middle of each batch that it writes."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.batches = 0

    def decide(
        self, state: bytes | None, events: list[str], now: int, group_id: str = "g"
    ) -> tuple[bytes | None, GroupOutput]:
        result = BatchMachine().process(group_id, state, events, now)
        return result.state, result.output or GroupOutput([], [], [], [])

    def write(self, output: GroupOutput) -> None:
        Sink(self.root, CoordinatorSettings()).write([output], "q", self.batches)
        self.batches += 1

    def killed_after_records(self, state: bytes | None, *requests: RequestEvent) -> GroupOutput:
        """Decide requests; of what is decided only the records are written."""
        texts = [msgspec.json.encode(each).decode() for each in requests]
        _, output = self.decide(state, texts, NOW)
        self.write(GroupOutput([], output.records, [], []))
        return output

    def taken_over(
        self, partition_set: PartitionSet | None = None, group_id: str = "g"
    ) -> tuple[list[str], GroupOutput]:
        """The events that another node is brought of the group, and what it makes of them."""
        uri = f"{self.root}/bootstrap"
        bootstrap = prepare_bootstrap(self.root, uri, partition_set)
        packed = DeltaTable(bootstrap.uri).to_pyarrow_table()
        mine = [row["event"] for row in packed.to_pylist() if row["group_id"] == group_id]
        events = unpack(mine)
        return events, self.decide(None, events, NOW + 15_000, group_id)[1]


def answers(output: GroupOutput) -> dict[str, msgspec.Struct]:
    return {r.request_id: msgspec.structs.replace(r, responded_at=0) for r in output.responses}


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([commit("c", 5)], id="one commit"),
        pytest.param([commit("c", 5, 7), commit("d", 6, 8)], id="the later of two commits"),
        pytest.param([commit("c", 5, topic=AWKWARD), commit(AWKWARD, 6)], id="awkward names"),
        pytest.param([commit("c", 5), offset_delete("o", 0)], id="deleted offsets"),
        pytest.param([commit("c", 5), delete("d")], id="a deleted group"),
        pytest.param([commit("c", 5), delete("d"), commit("e", 6)], id="a group that came again"),
    ],
)
def test_what_stands_is_answered_by_its_records_and_recorded_once(root, requests):
    RequestLog(root).append([*requests, heartbeat("h")])
    node = Node(root)
    before = node.killed_after_records(None, *requests)
    _, after = node.taken_over()
    assert after.records == []
    expected = answers(before)
    assert {name: answer for name, answer in answers(after).items() if name != "h"} == expected
    assert answers(after).keys() == {*expected, "h"}
    node.write(after)
    assert node.taken_over()[1].responses == []


@pytest.mark.parametrize("then", [commit("d", 6), offset_delete("o", 0)], ids=["commit", "delete"])
def test_what_compaction_has_moved_meanwhile_stands_too(root, then):
    """Decided again, the earlier one of two commits would set the offset back."""
    requests = [commit("c", 5), then]
    RequestLog(root).append(requests)
    node = Node(root)
    before = node.killed_after_records(None, *requests)
    closing = CoordinatorSettings(segment_bytes=1)
    _, other = node.decide(None, [msgspec.json.encode(commit("x", 1)).decode()], NOW, "other")
    Sink(root, closing).write([other], "q", node.batches)
    assert compact(root, UpkeepSettings(), NOW + 1, force=True).history == 1
    _, after = node.taken_over()
    assert (answers(after), after.records) == (answers(before), [])


def test_it_comes_as_the_request_does_and_with_its_own_records_alone(root):
    """Also where an event is larger than a request may be: it was decided."""
    requests = [commit("c", *range(100)), commit("d", 7), commit("waits", 8)]
    RequestLog(root).append(requests)
    node = Node(root)
    node.killed_after_records(None, *requests[:2])
    events, _ = node.taken_over()
    told = [msgspec.json.decode(event) for event in events]
    by_id = {
        each["request"]["request_id"]: each["records"]
        for each in told
        if each.get("control") == "recorded"
    }
    committed = {name: [r["offset_commit"]["offset"] for r in mine] for name, mine in by_id.items()}
    assert committed == {"c": list(range(100)), "d": [7]}
    packed = DeltaTable(f"{root}/bootstrap").to_pyarrow_table()
    assert refuse_packed(packed, 1_000).equals(packed)
    keys = {event[:KEY_WIDTH] for event in packed.column("event").to_pylist()} - {FIRST_KEY}
    # Microseconds: events of one millisecond keep their order.
    assert keys == {f"{NOW}00{number}".zfill(KEY_WIDTH) for number in range(3)}


def test_where_nothing_stands_requests_come_as_they_are(root):
    """As nearly always: no request is decoded."""
    RequestLog(root).append([commit("c", 5)])
    events, _ = Node(root).taken_over()
    assert [decode_request(event).request_id for event in events] == ["c"]


def test_only_the_records_of_the_claimed_partitions_count(root):
    """A request id that another group's record has is not this request's."""
    groups = [next(f"g{n}" for n in range(9) if partition_for(f"g{n}", 2) == p) for p in (0, 1)]
    mine, theirs = groups
    node = Node(root)
    text = msgspec.json.encode(commit("r", 5, group_id=theirs)).decode()
    _, output = node.decide(None, [text], NOW, theirs)
    moved = [msgspec.structs.replace(record, partition=1) for record in output.records]
    node.write(GroupOutput([], moved, [], []))
    RequestLog(root).append([commit("r", 5, group_id=mine)])
    for partition_set in (PartitionSet({0}, 2), None):
        _, after = node.taken_over(partition_set, mine)
        assert len(after.records) == 1


def test_elsewhere_than_on_a_local_disk_it_is_the_same(root, monkeypatch):
    requests = [commit("c", 5), commit("d", 6)]
    RequestLog(root).append(requests)
    node = Node(root)
    before = node.killed_after_records(None, *requests)
    for module in ("table_files", "store_files", "table"):
        monkeypatch.setattr(
            f"group_coordinator.pipeline.delta.{module}.local_folder", lambda _: None
        )
    _, after = node.taken_over()
    assert (answers(after), after.records) == (answers(before), [])


def test_pages_of_waiting_requests_have_their_own_records(root, monkeypatch):
    monkeypatch.setattr("group_coordinator.pipeline.node.waiting_requests._ROW_GROUP_BYTES", 1)
    requests = [commit(f"c{n}", n) for n in range(5)]
    for each in requests:
        RequestLog(root).append([each])
    node = Node(root)
    before = node.killed_after_records(None, *requests)
    _, after = node.taken_over()
    assert (answers(after), after.records) == (answers(before), [])
