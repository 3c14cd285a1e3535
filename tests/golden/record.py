"""The content of a golden root, and the results that all later releases must get from it."""

from __future__ import annotations

from pathlib import Path

import msgspec
from deltalake import DeltaTable
from msgspec import Struct

from group_coordinator.coordinator.group.batch import BatchSettings
from group_coordinator.coordinator.group.control import is_control
from group_coordinator.coordinator.group.coordinator import Node
from group_coordinator.coordinator.group.group_snapshot import decode
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.pipeline.node.bootstrap import prepare_bootstrap
from group_coordinator.pipeline.settings import Settings, load_settings
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH
from group_coordinator.schemas.messages import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    OffsetFetchRequest,
    RequestEvent,
    Response,
)

HERE = Path(__file__).parent
NODE_ID = 1
# The time at which groups are restored from the offsets topic, ms: it changes no response.
RESTORED_AT = 0


class Answers(Struct):
    """The responses of a group to DescribeGroups, and to a fetch of all its offsets."""

    describe: Response
    fetch: Response


class Beat(Struct):
    """A member's heartbeat, and the error code of its response."""

    body: HeartbeatRequest
    error_code: int


class GoldenGroup(Struct):
    """A group of the root.

    `state` is its state in the state store, `live` are its responses from that state. `loaded` are
    the responses of the group after it was restored from the offsets topic. `remembered` are
    requests with a repetition that is not answered at `written_at`.
    """

    state: bytes
    live: Answers
    loaded: Answers
    heartbeats: list[Beat]
    remembered: list[RequestEvent]


class Golden(Struct):
    """The content that a release wrote; `written_at` is the time of the store's last batch, ms.

    `parked` maps the ids of joins and syncs that wait within a group to the group. `unanswered` are
    requests in the tables that no batch has read. `last_batch` is the last batch of the streaming
    checkpoint, `query` the identifier of its query.
    """

    release: str
    state_version: int
    spark: str
    written_at: int
    query: str
    last_batch: int
    topics: dict[str, int]
    parked: dict[str, str]
    unanswered: list[RequestEvent]
    groups: dict[str, GoldenGroup]


def releases() -> list[str]:
    """Return the releases with golden roots."""
    return sorted(path.parent.name for path in HERE.glob("*/record.json"))


def read(release: str) -> Golden:
    """Read the record of a release."""
    return msgspec.json.decode((HERE / release / "record.json").read_bytes(), type=Golden)


def settings() -> Settings:
    """Return the settings of the coordinators that write and read golden roots."""
    return load_settings(HERE / "coordinator.toml").with_node_id(NODE_ID)


def machine(group_id: str, state: bytes, start_later: bool = False) -> BatchMachine:
    """Return a machine with the claim under which a state was written.

    It belongs to the same start of the coordinator, or to a later one.
    """
    snapshot = decode(state)
    config = settings().group
    partition = partition_for(group_id, config.offsets_topic_num_partitions)
    assert snapshot.claim_epoch is not None
    return BatchMachine(
        BatchSettings(
            config=config,
            node=Node(NODE_ID, "localhost", 9092),
            start_epoch=snapshot.start_epoch + start_later,
            claims={partition: snapshot.claim_epoch},
        )
    )


def describe(group_id: str, request_id: str) -> RequestEvent:
    """Return the request for the group's description."""
    body = DescribeGroupsRequest()
    return RequestEvent(request_id, group_id, "describe_groups", describe_groups=body)


def fetch(group_id: str, request_id: str) -> RequestEvent:
    """Return the request for all of the group's offsets."""
    body = OffsetFetchRequest()
    return RequestEvent(request_id, group_id, "offset_fetch", offset_fetch=body)


def heartbeat(group_id: str, request_id: str, body: HeartbeatRequest) -> RequestEvent:
    """Return a member's heartbeat."""
    return RequestEvent(request_id, group_id, "heartbeat", heartbeat=body)


def said(response: Response) -> Response:
    """Return a response without the fields that differ between requests."""
    return msgspec.structs.replace(response, request_id="", responded_at=None)


def decided(
    group_id: str, state: bytes, events: list[RequestEvent], now: int, start_later: bool = False
) -> list[Response]:
    """Return the responses of the present machine from a state at a time."""
    texts = [msgspec.json.encode(event).decode() for event in events]
    output = machine(group_id, state, start_later).process(group_id, state, texts, now).output
    return [] if output is None else output.responses


def answers_of(group_id: str, state: bytes, now: int, start_later: bool = False) -> Answers:
    """Describe a state's group and fetch its offsets, with the present machine."""
    asked = [describe(group_id, "describe"), fetch(group_id, "fetch")]
    described, fetched = decided(group_id, state, asked, now, start_later)
    return Answers(said(described), said(fetched))


def loaded(root: str, scratch: Path) -> dict[str, bytes]:
    """Return the state of each group as this release restores it from the offsets topic."""
    bootstrap = prepare_bootstrap(root, str(scratch / "bootstrap"))
    restorer = BatchMachine(BatchSettings(settings().group))
    states: dict[str, bytes] = {}
    for row in DeltaTable(bootstrap.uri).to_pyarrow_table().to_pylist():
        event = row["event"][KEY_WIDTH:]
        # A group has a second such event if requests were answered within the deduplication window.
        if is_control(event):
            before = states.get(row["group_id"])
            state = restorer.process(row["group_id"], before, [event], RESTORED_AT).state
            assert state is not None
            states[row["group_id"]] = state
    return states
