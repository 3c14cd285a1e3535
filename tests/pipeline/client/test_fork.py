"""Objects with threads refuse to work in a forked child process, which lacks their threads."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from group_coordinator import (
    Consumer,
    GroupMember,
    Producer,
    ProgressCommits,
    RequestClient,
    RequestProducer,
)
from group_coordinator.pipeline.background import UsedAfterFork
from group_coordinator.pipeline.client.response_reader import ResponseReader
from group_coordinator.pipeline.tables.store import ensure_tables
from group_coordinator.pipeline.topics import create_log_topic
from group_coordinator.schemas.messages import HeartbeatRequest, RequestEvent

REQUEST = RequestEvent("r", "g", "heartbeat", heartbeat=HeartbeatRequest(1, "m"))


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "root")
    ensure_tables(root)
    create_log_topic(root, "t", 1)
    return root


def in_forked_child(call: Callable[[], object]) -> str:
    """Run the call in a forked child process; return the name and text of its exception."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python warns of a fork with threads since 3.12.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            outcome = f"returned {call()!r}"
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        os.write(writing, outcome.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    return told


def assert_refused_after_fork(*calls: Callable[[], object]) -> None:
    for call in calls:
        told = in_forked_child(call)
        assert told.startswith(UsedAfterFork.__name__), told
        assert f"was created in process {os.getpid()}" in told
        assert 'multiprocessing\'s method "spawn"' in told


def test_request_producer_refuses_to_work_in_a_forked_child(root: str) -> None:
    with RequestProducer(root) as producer:
        assert_refused_after_fork(lambda: producer.send(REQUEST), producer.flush, producer.close)
        assert producer.send(REQUEST).result(60).request_id == "r"


def test_response_reader_refuses_to_work_in_a_forked_child(root: str) -> None:
    with ResponseReader(root) as reader:
        assert_refused_after_fork(lambda: reader.register("r"), reader.close)


def test_request_client_refuses_to_work_in_a_forked_child(root: str) -> None:
    with RequestClient(root) as client:
        assert_refused_after_fork(
            lambda: client.send(REQUEST), lambda: client.ask(REQUEST), client.flush, client.close
        )


def test_producer_refuses_to_work_in_a_forked_child(root: str) -> None:
    with Producer(root) as producer:
        assert producer.send("t", b"before").result(60).offset == 0
        assert_refused_after_fork(
            lambda: producer.send("t", b"v"),
            lambda: producer.send("other", b"v"),
            lambda: producer.partitions_for("t"),
            producer.flush,
            producer.close,
        )
        assert producer.send("t", b"after").result(60).offset == 1


def test_consumer_refuses_to_work_in_a_forked_child(root: str) -> None:
    with Consumer(root) as consumer:
        consumer.assign([("t", 0)])
        assert_refused_after_fork(
            consumer.poll,
            lambda: consumer.assign([("t", 0)]),
            lambda: consumer.assignment,
            lambda: consumer.partitions_for("t"),
            consumer.close,
        )


def test_member_refuses_to_work_in_a_forked_child_and_sends_nothing_for_its_parent(
    root: str,
) -> None:
    with GroupMember(root, "g", ["t"]) as member:
        assert_refused_after_fork(
            member.poll,
            lambda: member.commit(),
            lambda: member.generation,
            member.close,
            # The child has the parent's client for this root.
            lambda: GroupMember(root, "other", ["t"]),
        )
        member.close(timeout_ms=0)


def test_progress_commits_refuse_to_close_in_a_forked_child(root: str) -> None:
    commits = ProgressCommits(root, "g")
    assert_refused_after_fork(commits.close)
    assert commits.close()
