"""A root that has rows for every view: of real clients, of hostile ones, and of long ago."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    TopicPartition,
    encode_assignment,
)
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.replay.demo import Demo
from group_coordinator.pipeline.tables.acl_table import add_acls, remove_acls
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import ensure_table, table_uri
from group_coordinator.pipeline.topics import create_table_topic
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.schemas.acls import AclBinding, AclFilter
from group_coordinator.schemas.messages import (
    DeleteGroupsRequest,
    LeaveGroupRequest,
    LeavingMember,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    RejectedRequest,
    RequestEvent,
)
from group_coordinator.schemas.records import CoordinatorEvent, CoordinatorRecord, GroupEvent
from group_coordinator.schemas.rows import GatewayEvent, GatewayListener
from group_coordinator.schemas.tables import (
    COORDINATORS,
    GATEWAYS,
    GROUP_EVENTS,
    REJECTED_REQUESTS,
    to_arrow,
)
from tests.pipeline.hostile import ASSIGNMENTS, RECORDS, stored_members
from tests.pipeline.offsets_log import Log, commit, upkeep
from tests.pipeline.small import SmallCoordinator
from tests.pipeline.topics.logs import appender, batch, make
from tests.pipeline.topics.tables import append, opened

# Conversations of less than a second.
_CONVERSATIONS = ["i01-wrong-member-id", "i05-unknown-group", "i11-offset-delete-subscribed"]
# The rest has other offsets partitions than what the coordinator writes.
_PARTITION = 60


def make_whole_root(folder: Path) -> tuple[str, int]:
    """Make the root under a folder; return it, and the time, ms, at which to look at it."""
    root = str(folder / "root")
    log = Log(root)
    scene = Demo(folder, Console(file=StringIO()), names=_CONVERSATIONS)
    scene.prepare()
    coordinator = SmallCoordinator(root, {"group.initial.rebalance.delay.ms": 0})
    try:
        assert scene.replay_traces(lambda: None)
    finally:
        coordinator.stop()
    now = clock_ms()
    _make_topics(folder, root, now)
    for records in (_hostile(), _consumers(now), _unknown()):
        log.append(*(_moved(each) for each in records))
    log.roll()
    log.append(*(_moved(each) for each in _superseding()))
    compact(root, upkeep(), now, lambda _: None, force=True)
    log.append(*(_moved(each) for each in _superseding()))
    _ask(root)
    _decide(root, now)
    return root, now


def _moved(record: CoordinatorRecord) -> CoordinatorRecord:
    return msgspec.structs.replace(record, partition=record.partition + _PARTITION)


def _make_topics(folder: Path, root: str, now: int) -> None:
    """A topic with a table of its own, and one of a user's table, of which rows are not indexed."""
    log_appender = appender(make(root))
    for start in range(now - 100_000, now, 10_000):
        produced = batch(0, *("v" for _ in range(100)))
        produced.timestamps = [start + 97 * place for place in range(100)]
        log_appender.append([produced])
    log_appender.append([batch(1, "a", "b", at=10**14), batch(1, "c", at=-(10**13)), batch(1, "d")])
    orders = str(folder / "orders")
    append(orders, range(20))
    create_table_topic(root, "orders", 2, orders, key="id")
    opened(root)
    append(orders, range(20, 25))


def _hostile() -> list[CoordinatorRecord]:
    """Of whatever clients may choose several hundred, the same ones in each run."""
    found: list[CoordinatorRecord] = []
    blobs: list[bytes] = []
    chosen = settings(max_examples=30, derandomize=True, database=None, deadline=None)

    @chosen
    @given(st.lists(RECORDS, max_size=10), st.lists(ASSIGNMENTS, max_size=10))
    def choose(records: list[CoordinatorRecord], assignments: list[bytes]) -> None:
        found.extend(records)
        blobs.extend(assignments)

    choose()
    high = encode_assignment(Assignment((TopicPartition("t", -(2**31)), TopicPartition("t", -1))))
    surrogate = b"\0\0" + b"\0\0\0\1" + b"\0\3\xed\xa0\x80" + b"\0\0\0\0" + b"\xff\xff\xff\xff"
    return [*found, stored_members("everybody", [b"", high, surrogate, *blobs])]


def _consumers(now: int) -> list[CoordinatorRecord]:
    """Groups of each verdict, with a member that has nothing, and one that shares a partition."""

    def commits(
        group: str, *offsets: int, every_ms: int = 9_000, last: int = now
    ) -> list[CoordinatorRecord]:
        first = last - every_ms * (len(offsets) - 1)
        return [commit(group, each, first + n * every_ms) for n, each in enumerate(offsets)]

    shared = encode_assignment(Assignment((TopicPartition("t", 0), TopicPartition("t", 2))))
    nothing = encode_assignment(Assignment(()))
    return [
        *commits("lagging", 100, 148, 201, 247, 290),
        *commits("stalled", *([5] * 12), every_ms=7_000),
        *commits("stopped", 300, 310, last=now - 80_000),
        *commits("keeps up", 700, 800, 900, 960),
        *commits("set back", 700, 1_000, 1_100, 20),
        *(commit("of orders", 3, now - 5_000, ("orders", number)) for number in range(2)),
        stored_members("lagging", [shared, shared, nothing]),
        stored_members("stalled", [shared], "connect"),
    ]


def _unknown() -> list[CoordinatorRecord]:
    def of_kind(group: str, kind: str, key: bytes, value: bytes | None) -> CoordinatorRecord:
        return CoordinatorRecord(0, kind, group, 9, key=key, value=value)

    return [
        of_kind("share", "share_group_metadata", b"1", b"x"),
        of_kind("share", "a_kind", b"2", b"\xff\0"),
        of_kind("no more", "a_kind", b"1", b"x"),
        of_kind("no more", "a_kind", b"1", None),
    ]


def _superseding() -> list[CoordinatorRecord]:
    return [commit("long ago", None if n % 5 == 4 else n, 1_000 + n) for n in range(12)]


def _ask(root: str) -> None:
    """Requests of nobody who is a member, and some without what they should have."""

    def committing(number: int, group: str, member: str | None) -> RequestEvent:
        topics = (OffsetCommitTopic("t", (OffsetCommitPartition(0, number),)),)
        body = OffsetCommitRequest(member_id=member, topics=topics)
        return RequestEvent(
            f"r{number}",
            group,
            "offset_commit",
            principal="User:a",
            offset_commit=body,
        )

    leaving = [(), (LeavingMember("", "i"),), (LeavingMember("m"), LeavingMember("n"))]
    RequestLog(root).append(
        [
            committing(1, "lagging", None),
            committing(2, "lagging", "m0"),
            RequestEvent("r3", "stalled", "delete_groups", delete_groups=DeleteGroupsRequest()),
            *(
                RequestEvent(f"l{n}", "g", "leave_group", leave_group=LeaveGroupRequest(members))
                for n, members in enumerate(leaving)
            ),
        ]
    )


def _decide(root: str, now: int) -> None:
    """Transitions of groups, owners of partitions, a gateway, ACLs, and what was rejected."""
    steps = ("PreparingRebalance", "CompletingRebalance", "Stable", "PreparingRebalance", "Empty")
    events = [
        GroupEvent(now - 10_000 + n * 777, "lagging", "transition", "x", to, n, reason=f"why {n}")
        for n, to in enumerate(steps[:3])
    ] + [
        GroupEvent(-5 + n, "stalled", "transition", None, to, n, request_id="r")
        for n, to in enumerate(steps)
    ]
    owners = [
        CoordinatorEvent(now, 7 + n, event, n, number, f"host-{n}", 90)
        for n, (number, event) in enumerate(
            [(60, "claimed"), (61, "claimed"), (61, "released"), (62, "claimed")]
        )
    ]
    ensure_table(root, GATEWAYS)
    for table, rows in (
        (GROUP_EVENTS, events),
        (COORDINATORS, owners),
        (GATEWAYS, [GatewayEvent(1, 1, "h", 9092, False, now, (GatewayListener("a", "h", 1),))]),
        (REJECTED_REQUESTS, [RejectedRequest(now, "no JSON", "{")]),
    ):
        Appender(Path(table_uri(root, table))).append(to_arrow(table, rows))
    acl = AclBinding("GROUP", "lagging", "LITERAL", "User:a", "*", "READ", "ALLOW")
    other = AclBinding("TOPIC", "t", "PREFIXED", "User:a", "*", "READ", "DENY")
    add_acls(root, [acl, other], by="User:admin")
    remove_acls(root, [AclFilter(resource_type="TOPIC")])
