"""Who reads and writes `requests` copies a signed row: nothing is decided by it a second time.

Within `request.dedup.window.ms` its id is remembered; after that its deadline is over.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.client import ProducerSettings, RequestClient
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.gateway_settings import GatewaySettings
from group_coordinator.pipeline.tables.request_keys import add_key, new_key, read_keys
from group_coordinator.pipeline.tables.store import read_table, table_uri
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.tables import REQUESTS, RESPONSES
from tests.clocks import AheadClocks
from tests.pipeline.gateway.raw import Client, connected
from tests.pipeline.gateway.running import coordinator, gateway
from tests.waiting import wait_until

SESSION_MS = 600_000
# Of the coordinator: `request.dedup.window.ms`, and a little more.
LATER_S = 61


@pytest.fixture
def clocks() -> Iterator[AheadClocks]:
    with clock.use(made := AheadClocks()):
        yield made


@pytest.fixture
def signing(tmp_path: Path) -> str:
    """The file of a gateway's key, which the coordinator knows."""
    key = new_key("gateway", "*")
    for name in ("keys", "gateway"):
        add_key(tmp_path / name, key)
    return str(tmp_path / "gateway")


def write_again(root: str, api: str, at: int = 0) -> None:
    """Append the row of an API's request once more, and wait until it is answered."""
    rows = read_table(root, REQUESTS)
    copied = rows.filter(pc.equal(rows.column("api"), api))
    copied = copied.take(pc.sort_indices(copied.column("sent_at"))).slice(at, 1)
    assert copied.column("signature")[0].is_valid
    (request_id,) = copied.column("request_id").to_pylist()
    assert Appender(table_uri(root, REQUESTS)).append(copied, str(uuid.uuid4()), 0)

    def answers() -> int:
        return read_table(root, RESPONSES).column("request_id").to_pylist().count(request_id)

    wait_until("a second answer", lambda: answers() == 2)


# --- by way of a gateway --------------------------------------------------------------------------


def join(client: Client) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    return client.ask(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id="",
            group_instance_id="i",
            protocol_type="consumer",
            protocols=[protocol],
        ),
        JoinGroupResponse,
        5,
    )


def beat(client: Client, member_id: str) -> int:
    request = HeartbeatRequest(
        group_id="g", generation_id=1, member_id=member_id, group_instance_id="i"
    )
    return int(client.ask(request, HeartbeatResponse, 4).error_code)


def test_a_join_that_is_written_again_fences_nobody(
    root: str, tmp_path: Path, signing: str, clocks: AheadClocks
) -> None:
    """The copy took the static member's place, whose client was told FENCED_INSTANCE_ID."""
    settings = GatewaySettings(request_key_file=signing)
    with (
        coordinator(root, read_keys(tmp_path / "keys")),
        gateway(root, settings=settings) as broker,
        connected(broker) as client,
    ):
        joined = join(client)
        assert (joined.error_code, joined.generation_id) == (0, 1)
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=joined.member_id,
            group_instance_id="i",
            assignments=[],
        )
        assert client.ask(sync, SyncGroupResponse, 3).error_code == 0
        # It is started anew; its first join is the one that is copied.
        joined = join(client)
        assert joined.error_code == 0
        assert beat(client, joined.member_id) == 0
        clocks.wall_ahead_s = LATER_S
        for api in ("join_group", "sync_group", "heartbeat"):
            write_again(root, api)
        # Its own answers tell the gateway that the coordinator's clock was set: its client retries.
        codes = [beat(client, joined.member_id) for _ in range(2)]
        assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 0]
    answers = read_table(root, RESPONSES)
    late = answers.filter(pc.equal(answers.column("error"), "REQUEST_TIMED_OUT"))
    assert sorted(late.column("api").to_pylist()) == [
        "heartbeat",
        "heartbeat",
        "join_group",
        "sync_group",
    ]


# --- by a client that writes its rows itself ------------------------------------------------------


def commit(offset: int) -> m.RequestEvent:
    partitions = (m.OffsetCommitPartition(0, offset),)
    topics = (m.OffsetCommitTopic("t", partitions),)
    body = m.OffsetCommitRequest(topics=topics)
    return m.RequestEvent(str(uuid.uuid4()), "g", "offset_commit", offset_commit=body)


def test_a_commit_that_is_written_again_sets_no_offset_back(
    root: str, tmp_path: Path, signing: str, clocks: AheadClocks
) -> None:
    """The client's first request is one: it asks its coordinator for the time before."""
    producer = ProducerSettings(linger_ms=0, request_key_file=signing)
    with (
        coordinator(root, read_keys(tmp_path / "keys")),
        RequestClient(root, producer) as client,
    ):

        def asked(api: str, body: Any) -> m.Response:
            return client.ask(m.RequestEvent(str(uuid.uuid4()), "g", api, **{api: body}))

        for offset in (5, 9):
            assert client.ask(commit(offset)).error_code == 0
        clocks.wall_ahead_s = LATER_S
        write_again(root, "offset_commit")
        fetched = asked("offset_fetch", m.OffsetFetchRequest()).offset_fetch
        assert fetched is not None
        (topic,) = fetched.topics
        assert [each.committed_offset for each in topic.partitions] == [9]
