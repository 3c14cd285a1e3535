"""The promises that the torture checks: kept by a coordinator, and each seen when it is broken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import pyarrow as pa
import pytest

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.messages import HeartbeatRequest, RequestEvent, Response
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    OFFSET_COMMIT,
    CoordinatorEvent,
    CoordinatorRecord,
    GroupEvent,
    GroupMetadataValue,
    OffsetCommitValue,
)
from group_coordinator.schemas.tables import (
    COORDINATORS,
    GROUP_EVENTS,
    OFFSETS_TOPIC,
    REQUESTS,
    RESPONSES,
    Table,
    to_arrow,
    to_events,
    to_requests,
)
from tests.pipeline.small import SmallCoordinator
from tests.trials.torture import promises
from tests.trials.torture.load import Book, Key, Load
from tests.trials.torture.promises import Auditor, PromiseBroken
from tests.waiting import wait_until

pytestmark = pytest.mark.full

NODE = {"small": 1}
KEY = Key("g", "t", 0)


def append(root: str, table: Table, *rows: object, **columns: object) -> None:
    if table is REQUESTS:
        arrow = to_requests(list(rows))
    elif table is GROUP_EVENTS:
        arrow = to_events(list(rows))
    else:
        arrow = to_arrow(table, list(rows), columns)
    Appender(table_uri(root, table)).append(arrow)


def request(request_id: str, sent_at: int = 0) -> RequestEvent:
    body = HeartbeatRequest(1, "m-1")
    return RequestEvent(request_id, "g", "heartbeat", sent_at=sent_at, heartbeat=body)


def answer(request_id: str, api: str = "offset_commit") -> Response:
    return Response(request_id, "g", api, 0, "NONE", responded_at=clock_ms())


def commit(request_id: str, log_offset: int, offset: int = 5) -> CoordinatorRecord:
    value = OffsetCommitValue(offset, -1, "", 0)
    return CoordinatorRecord(
        0, OFFSET_COMMIT, "g", 0, log_offset, "t", 0, value, reason="", request_id=request_id
    )


def stable(log_offset: int, generation: int) -> CoordinatorRecord:
    value = GroupMetadataValue("consumer", generation, "range", None, 0, ())
    return CoordinatorRecord(0, GROUP_METADATA, "g", 0, log_offset, group_metadata=value, reason="")


def record(root: str, *records: CoordinatorRecord) -> None:
    append(root, OFFSETS_TOPIC, *records, segment=pa.array([0] * len(records), pa.int64()))


@pytest.fixture
def load(root: str) -> Iterator[Load]:
    claims = [CoordinatorEvent(clock_ms(), 0, "claimed", 1, partition=p) for p in range(50)]
    append(root, COORDINATORS, *claims)
    coordinator = SmallCoordinator(root, {"group.initial.rebalance.delay.ms": 0})
    clients = Load(root, 1)
    try:
        yield clients
    finally:
        clients.stop()
        coordinator.stop()


class Quiet:
    """Clients that ask nothing."""

    def __init__(self) -> None:
        self.book = Book()

    def resting(self) -> AbstractContextManager[None]:
        return nullcontext()


def test_a_coordinator_that_is_left_alone_keeps_every_promise(root: str, load: Load) -> None:
    auditor = Auditor(root)
    wait_until("25 commits", lambda: load.book.counts["acknowledged"] >= 25)
    auditor.check(load, NODE)
    first = auditor.records
    assert first >= 25
    assert len(auditor.answers) >= load.book.counts["commits"] / 4
    wait_until("50 commits", lambda: load.book.counts["acknowledged"] >= 50)
    auditor.check(load, NODE)
    assert auditor.records > first
    assert set(load.book.acknowledged) <= set(load.book.asked)
    groups = {key.group_id for key in load.book.acknowledged}
    assert groups == {"committer-0", "committer-1", "committer-2", "members-0", "members-1"}
    (answers,) = Catalog(root).query("SELECT count(*) FROM responses").rows
    assert answers[0] >= len(auditor.answers)


def test_what_a_client_was_told_must_be_committed(root: str, load: Load) -> None:
    key = Key("committer-0", "t", 0)
    wait_until("a commit", lambda: key in load.book.acknowledged)
    load.book.acknowledge(Key("committer-0", "t", 0), 10**9)
    with pytest.raises(PromiseBroken, match=r"committer-0.*: 1000000000 is acknowledged"):
        Auditor(root).check(load, NODE)


def test_what_nobody_asked_for_must_not_be_committed(root: str, load: Load) -> None:
    key = Key("committer-1", "t", 0)
    wait_until("a commit", lambda: key in load.book.acknowledged)
    load.book.asked[Key("committer-1", "t", 0)] = 0
    with pytest.raises(PromiseBroken, match="is committed, 0 was asked for"):
        Auditor(root).check(load, NODE)


def twice_answered(root: str) -> None:
    append(root, RESPONSES, answer("r"))
    append(root, RESPONSES, answer("r"))


def never_answered(root: str) -> None:
    append(root, REQUESTS, request("r"))


def acknowledged_without_a_record(root: str) -> None:
    append(root, RESPONSES, answer("r"))


def answered_before_the_record(root: str) -> None:
    append(root, RESPONSES, answer("r"))
    time.sleep(0.002)
    record(root, commit("r", 0))


def recorded_twice(root: str) -> None:
    record(root, commit("r", 0))
    record(root, commit("r", 1))


def recorded_at_one_place(root: str) -> None:
    record(root, commit("r", 3))
    record(root, commit("s", 3))


def a_generation_that_falls(root: str) -> None:
    record(root, stable(0, 4))
    record(root, stable(1, 3))


def an_offset_that_falls(root: str) -> None:
    record(root, commit("r", 0, offset=5))
    record(root, commit("s", 1, offset=4))


def a_writer_that_owns_nothing(root: str) -> None:
    append(root, COORDINATORS, CoordinatorEvent(clock_ms(), 0, "claimed", 2, partition=0))
    arrow = to_arrow(OFFSETS_TOPIC, [commit("r", 0)], {"segment": pa.array([0], pa.int64())})
    Appender(table_uri(root, OFFSETS_TOPIC)).append(arrow, "small", 1)


def expired_while_it_heartbeats(root: str) -> None:
    now = clock_ms()
    append(root, REQUESTS, request("r", now - 4_000))
    append(root, RESPONSES, answer("r", "heartbeat"))
    reason = "session of 12000 ms expired without a heartbeat"
    append(
        root, GROUP_EVENTS, GroupEvent(now, "g", "member_expired", member_id="m-1", reason=reason)
    )


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (twice_answered, "request r is answered twice"),
        (never_answered, "1 requests are not answered after 0 s: r"),
        (acknowledged_without_a_record, "request r is acknowledged and no record"),
        (answered_before_the_record, r"request r is answered \d+ ms before it is a record"),
        (recorded_twice, "request r is a record of .* twice"),
        (recorded_at_one_place, "partition 0: log offset 3 after 3"),
        (a_generation_that_falls, "g: generation 3 after 4"),
        (an_offset_that_falls, "offset 4 after 5"),
        (a_writer_that_owns_nothing, "wrote to partition 0, which was owned by 2"),
        (expired_while_it_heartbeats, r"g: m-1 is expired 4\d\d\d ms after a request"),
    ],
)
def test_a_broken_promise_is_seen(
    root: str, broken: Callable[[str], None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "_ANSWERS_S", 0.1)
    broken(root)
    with pytest.raises(PromiseBroken, match=message):
        Auditor(root).check(Quiet(), NODE)


def test_what_a_client_saw_broken_is_told(root: str) -> None:
    quiet = Quiet()
    quiet.book.problem("a client failed")
    with pytest.raises(PromiseBroken, match="a client failed"):
        Auditor(root).check(quiet, NODE)
