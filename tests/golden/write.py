"""A program that writes the golden root of the present release.

    python -m tests.golden.write

A coordinator on Spark forms groups in each lasting state, releases its partitions and claims them
again. It is stopped while members wait. Needs Java and about two minutes. Refuses to replace an
existing root of a release.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from importlib.metadata import version
from pathlib import Path

import msgspec
import pyspark

from group_coordinator.coordinator.group.group_snapshot import VERSION, decode
from group_coordinator.pipeline.client import RequestClient
from group_coordinator.pipeline.node.resumption import checkpoint_uri, stream_uri
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.ownership.hold import holding_partitions
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.topic_catalogue import create_topic, delete_topic
from group_coordinator.schemas.messages import (
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    RequestEvent,
    Response,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from tests.ends import check_end
from tests.golden.record import (
    HERE,
    NODE_ID,
    RESTORED_AT,
    Answers,
    Beat,
    Golden,
    GoldenGroup,
    answers_of,
    decided,
    describe,
    fetch,
    heartbeat,
    loaded,
    said,
)
from tests.golden.state_store import last_batch, read_states
from tests.support.process import KillableCoordinator
from tests.waiting import wait_until

SESSION_MS = 1_800_000
PARTITIONS, LEASE_MS = 4, 30_000
CENTURIES_MS = 10_000_000_000_000
TOPICS = {"clicks": 2, "orders": 4}
# ConsumerProtocolSubscription version 0 of the topic "orders", without user data.
_SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x00"
_WAIT_S = 120.0


class Groups:
    """The groups of one root, formed through a running coordinator."""

    def __init__(self, client: RequestClient) -> None:
        self._client = client
        self._numbers = itertools.count(1)
        self.parked: dict[str, str] = {}
        self.remembered: dict[str, list[RequestEvent]] = {}
        self.beats: dict[str, list[Beat]] = {}
        self.waiting: list[Future[Response]] = []

    def form(self) -> None:
        """Form all groups, without the waiting members."""
        self._stable()
        self._emptied()
        self._commit("simple", "clicks", 1, 500)
        self._commit("simple", "gone", 0, 9)
        self._commit("expiring", "orders", 2, 77, retention_ms=CENTURIES_MS)
        for group_id in ("preparing", "completing", "two-step"):
            self._alone(group_id)

    def park(self) -> None:
        """Leave members waiting for a response, and one that only got its id."""
        self._send(self._join("preparing", name="second"))
        # The group's first member gets the generation of both before any member has synced.
        second = self._send(self._join("completing", name="second"))
        first = self._ask(self._join("completing", member_id=self._member("completing")))
        joined = second.result(_WAIT_S).join_group
        assert joined is not None and first.join_group is not None
        follower = joined if joined.leader != joined.member_id else first.join_group
        self._send(self._sync("completing", follower.member_id, follower.generation_id))
        told = self._ask(self._join("two-step", name="second", api_version=9))
        assert told.error == "MEMBER_ID_REQUIRED"
        self.beats["completing"] = []

    def commit_again(self) -> None:
        """Commit once more in each group with offsets: the state has the newest."""
        self._commit("simple", "clicks", 0, 501)
        body = self.beats["stable"][0].body
        self._commit("stable", "orders", 0, 41, by=body)
        self._commit("stable", "orders", 3, 2**40, by=body, metadata="Grüße")

    def _stable(self) -> None:
        first = self._ask(self._join("stable", name="first")).join_group
        assert first is not None
        second = self._send(self._join("stable", name="second", instance="static-1"))
        self._ask(self._join("stable", member_id=first.member_id, name="first"))
        joined = second.result(_WAIT_S).join_group
        assert joined is not None and joined.generation_id == 2
        assigned = tuple(
            SyncGroupAssignment(member, f"for {name}".encode())
            for name, member in (("first", first.member_id), ("second", joined.member_id))
        )
        waits = self._send(self._sync("stable", joined.member_id, 2, instance="static-1"))
        self._ask(self._sync("stable", first.member_id, 2, assigned))
        waits.result(_WAIT_S)
        self.beats["stable"] = [
            Beat(HeartbeatRequest(2, first.member_id), 0),
            Beat(HeartbeatRequest(2, joined.member_id, "static-1"), 0),
            Beat(HeartbeatRequest(1, first.member_id), 22),
            Beat(HeartbeatRequest(2, "nobody"), 25),
        ]

    def _emptied(self) -> None:
        self._alone("emptied")
        self._commit("emptied", "orders", 1, 13, by=self.beats["emptied"][0].body)
        member_id = self._member("emptied")
        leave = LeaveGroupRequest((LeavingMember(member_id, None, "done"),))
        self._ask(self._event("emptied", "leave_group", leave_group=leave))
        self.beats["emptied"] = [Beat(HeartbeatRequest(1, member_id), 25)]

    def _alone(self, group_id: str) -> None:
        """Form a Stable group of one member."""
        joined = self._ask(self._join(group_id, name="first")).join_group
        assert joined is not None
        assigned = (SyncGroupAssignment(joined.member_id, b"all"),)
        self._ask(self._sync(group_id, joined.member_id, 1, assigned))
        error = {"preparing": 27}.get(group_id, 0)
        self.beats[group_id] = [Beat(HeartbeatRequest(1, joined.member_id), error)]

    def _member(self, group_id: str) -> str:
        return self.beats[group_id][0].body.member_id

    # --- requests -------------------------------------------------------------------------------

    def _event(self, group_id: str, api: str, **fields: object) -> RequestEvent:
        request_id = f"{group_id}/{next(self._numbers)}"
        return RequestEvent(
            request_id, group_id, api, client_host="/127.0.0.1", **{"client_id": "c", **fields}
        )

    def _join(
        self,
        group_id: str,
        member_id: str = "",
        name: str = "first",
        instance: str | None = None,
        api_version: int = 3,
    ) -> RequestEvent:
        body = JoinGroupRequest(
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol("range", _SUBSCRIPTION), JoinGroupProtocol("other", b"")),
        )
        version_ = 5 if instance is not None else api_version
        return self._event(
            group_id, "join_group", api_version=version_, client_id=name, join_group=body
        )

    def _sync(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        assignments: tuple[SyncGroupAssignment, ...] = (),
        instance: str | None = None,
    ) -> RequestEvent:
        body = SyncGroupRequest(generation, member_id, instance, "consumer", "range", assignments)
        return self._event(group_id, "sync_group", sync_group=body)

    def _commit(
        self,
        group_id: str,
        topic: str,
        partition: int,
        offset: int,
        by: HeartbeatRequest | None = None,
        metadata: str | None = None,
        retention_ms: int | None = None,
    ) -> None:
        place = OffsetCommitPartition(partition, offset, committed_metadata=metadata)
        body = OffsetCommitRequest(
            generation_id=None if by is None else by.generation_id,
            member_id=None if by is None else by.member_id,
            retention_time_ms=retention_ms,
            topics=(OffsetCommitTopic(topic, (place,)),),
        )
        api_version = None if retention_ms is None else 4
        event = self._event(group_id, "offset_commit", api_version=api_version, offset_commit=body)
        self._ask(event)
        self.remembered.setdefault(group_id, []).append(event)

    def _ask(self, event: RequestEvent) -> Response:
        return self._client.ask(event, int(_WAIT_S * 1000))

    def _send(self, event: RequestEvent) -> Future[Response]:
        answer = self._client.send(event)
        self.parked[event.request_id] = event.group_id
        answer.add_done_callback(lambda _: self.parked.pop(event.request_id, None))
        self.waiting.append(answer)
        return answer

    def answers(self) -> dict[str, Answers]:
        """Return the coordinator's responses for all groups."""
        asked = {
            group_id: (
                self._client.send(describe(group_id, f"{group_id}/describe")),
                self._client.send(fetch(group_id, f"{group_id}/fetch")),
            )
            for group_id in sorted({*self.beats, *self.remembered})
        }
        return {
            group_id: Answers(said(described.result(_WAIT_S)), said(fetched.result(_WAIT_S)))
            for group_id, (described, fetched) in asked.items()
        }


def unanswered(groups: Groups) -> list[RequestEvent]:
    """Return requests that are written while no coordinator runs."""
    beat = groups.beats["stable"][0].body
    place = OffsetCommitTopic("orders", (OffsetCommitPartition(2, 99),))
    commit = OffsetCommitRequest(
        generation_id=beat.generation_id, member_id=beat.member_id, topics=(place,)
    )
    return [
        RequestEvent("late-commit", "stable", "offset_commit", offset_commit=commit),
        heartbeat("stable", "late-heartbeat", beat),
        RequestEvent("late-nobody", "unknown", "heartbeat", heartbeat=beat),
    ]


def await_owned(root: str) -> None:
    """Wait until the coordinator owns all partitions."""
    wait_until(
        "the partitions are claimed",
        lambda: len(DecisionLog(root).read().kept_by(NODE_ID)) == PARTITIONS,
        _WAIT_S,
    )


def claim_again(root: str) -> None:
    """Let the coordinator release the partitions and claim them again, as for an import."""
    with holding_partitions(root, PARTITIONS, LEASE_MS, "to be claimed again"):
        pass
    await_owned(root)


def make_groups(
    root: str, client: RequestClient, meanwhile: Callable[[], None] = lambda: None
) -> Groups:
    """Let a running coordinator form all groups; call `meanwhile` before members wait."""
    for name, partitions in {**TOPICS, "gone": 1}.items():
        create_topic(root, name, partitions)
    groups = Groups(client)
    groups.form()
    delete_topic(root, "gone")
    meanwhile()
    groups.park()
    groups.commit_again()
    return groups


def run(root: str, logs: Path) -> tuple[Groups, dict[str, Answers]]:
    """Let a coordinator make the root; return its groups and its responses before its stop."""
    coordinator = KillableCoordinator(
        root, HERE / "coordinator.toml", logs / "coordinator.log", node_id=NODE_ID
    )
    try:
        coordinator.await_ready()
        with RequestClient(root) as client:
            groups = make_groups(root, client, lambda: claim_again(root))
            answers = groups.answers()
            parked = dict(groups.parked)
            check_end(coordinator.stop(), coordinator.log_path)
            for each in groups.waiting:
                each.cancel()
        groups.parked = parked
    finally:
        coordinator.kill()
    return groups, answers


def forget_place(copy: Path, root: str) -> None:
    """Remove the tables' original location: delta-rs writes it, and no reader uses it."""
    for commit in copy.rglob("_delta_log/00000000000000000000.json"):
        commit.write_bytes(commit.read_bytes().replace(f"file://{root}".encode(), b""))


def main() -> int:
    """Write the golden root of the present release."""
    release = version("lakehouse-group-coordinator")
    target = HERE / release
    if target.exists():
        print(f"{target} is there already", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
        folder = Path(scratch)
        root = str(folder / "root")
        groups, answers = run(root, folder)
        late = unanswered(groups)
        RequestLog(root).append(late)
        golden = record(root, folder, release, groups, answers, late)
        target.mkdir()
        # A node's log names the folder of the root.
        shutil.copytree(root, target / "root", ignore=shutil.ignore_patterns("_logs"))
        forget_place(target / "root", root)
    text = msgspec.json.format(msgspec.json.encode(golden), indent=1)
    (target / "record.json").write_bytes(text + b"\n")
    return 0


def record(
    root: str,
    scratch: Path,
    release: str,
    groups: Groups,
    answers: dict[str, Answers],
    late: list[RequestEvent],
) -> Golden:
    """Return the record of the root."""
    (start,) = Path(checkpoint_uri(root, NODE_ID)).glob("epoch-*")
    stream = Path(stream_uri(str(start)))
    states = read_states(stream)
    restored = loaded(root, scratch)
    assert answers.keys() <= states.keys(), (answers.keys(), states.keys())
    written_at = max(decode(state).touched_at for state in states.values())
    query = msgspec.json.decode((stream / "metadata").read_bytes())["id"]
    return Golden(
        release=release,
        state_version=VERSION,
        spark=pyspark.__version__,
        written_at=written_at,
        query=query,
        last_batch=last_batch(stream),
        topics=TOPICS,
        parked=groups.parked,
        unanswered=late,
        groups={
            group_id: GoldenGroup(
                state=states[group_id],
                live=answer,
                loaded=answers_of(group_id, restored[group_id], RESTORED_AT),
                heartbeats=groups.beats.get(group_id, []),
                remembered=[
                    event
                    for event in groups.remembered.get(group_id, [])
                    if decided(group_id, states[group_id], [event], written_at) == []
                ],
            )
            for group_id, answer in answers.items()
        },
    )


if __name__ == "__main__":
    sys.exit(main())
