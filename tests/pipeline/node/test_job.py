"""The whole job: requests in, answers out, a restart, a failure, and both ways of writing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from group_coordinator.coordinator.group.batch import BatchResult
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.pipeline.delta import log_trim, writer
from group_coordinator.pipeline.node import node
from group_coordinator.pipeline.node.node import CoordinatorNode
from group_coordinator.pipeline.settings import CoordinatorSettings, Settings
from group_coordinator.pipeline.stream import spark_engine
from group_coordinator.pipeline.stream.spark_engine import QueryFailed, SparkEngine
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import REQUESTS
from tests.pipeline.rows import counts, heartbeat, output, rows
from tests.support.empty import EmptyMachine
from tests.waiting import wait_until

pytestmark = pytest.mark.spark

WAIT_S = 90.0


@pytest.fixture
def start(spark, root) -> Iterator[Callable[..., CoordinatorNode]]:
    """Start coordinators at the root, and stop what still runs at the end."""
    running: list[CoordinatorNode] = []

    def start_one(make_machine=EmptyMachine, **settings: Any) -> CoordinatorNode:
        ours = CoordinatorSettings(**settings)
        engine = SparkEngine(spark, root, ours, make_machine)
        coordinator = node.start(engine, root, Settings(coordinator=ours))
        running.append(coordinator)
        return coordinator

    yield start_one
    for coordinator in running:
        coordinator.abandon()


def await_rows(root: str, name: str, ids: set[str], column: str = "request_id") -> None:
    def missing() -> set[str]:
        return ids - {row[column] for row in rows(root, name)}

    wait_until(lambda: f"{missing()} in {name}", lambda: not missing(), WAIT_S, every_s=0.1)


def test_every_request_is_answered_once_over_a_restart(start, root):
    log = RequestLog(root)
    first = start(state_store="memory")
    first.await_ready(WAIT_S)
    log.append([heartbeat("a", "g1"), heartbeat("b", "g2")])
    await_rows(root, "responses", {"a", "b"})
    first.stop()
    assert not first.running_query.query.isActive
    log.append([heartbeat("c", "g1")])
    second = start(state_store="memory")
    await_rows(root, "responses", {"a", "b", "c"})
    second.stop()
    assert counts(root)["responses"] == 3
    decided = sorted((row["epoch"], row["event"]) for row in rows(root, "coordinators"))
    assert sorted(set(decided)) == [
        (0, "started"),
        (1, "claimed"),
        (2, "stopped"),
        (3, "started"),
        (4, "stopped"),
    ], "what was claimed is still its own after a restart"


def test_an_event_that_names_nobody_is_rejected_whole_and_the_rest_is_answered(start, root):
    broken = [
        {"request_id": "no group", "api": "heartbeat"},
        {"group_id": "g", "api": "heartbeat", "client_id": "nameless"},
        {},
    ]
    write_deltalake(
        f"{root}/requests", pa.Table.from_pylist(broken, REQUESTS.schema), mode="append"
    )
    RequestLog(root).append([heartbeat("a")])
    start(make_machine=BatchMachine).await_ready(WAIT_S)
    await_rows(root, "responses", {"a"})
    await_rows(root, "rejected_requests", {"{}"}, "event")
    rejected = {row["event"]: row["reason"] for row in rows(root, "rejected_requests")}
    assert rejected['{"request_id":"no group","api":"heartbeat"}'] == "no group_id"
    nameless = '{"group_id":"g","api":"heartbeat","client_id":"nameless"}'
    assert rejected[nameless].startswith("no request_id")
    assert len(rejected) == 3


class Once:
    """A machine that sets a timer at its first call, and says once that it went off."""

    def set_settings(self, _settings):
        pass

    def process(self, _group_id, _state, events, now):
        if events:
            return BatchResult(b"armed", now + 10, None)
        return BatchResult(None, None, output(1))


def test_ready_is_when_the_whole_bootstrap_was_taken_in(start, root):
    RequestLog(root).append([heartbeat("waits")])
    coordinator = start(max_files_per_trigger=1)
    coordinator.await_ready(WAIT_S)
    assert coordinator.is_ready()
    # What waited is one file of the bootstrap, what wakes the stream another.
    assert coordinator.running_query.sink.batches >= 2
    assert "waits" in {row["request_id"] for row in rows(root, "responses")}


def test_a_timer_goes_off_once_though_nobody_asks_for_anything(start, root, monkeypatch):
    """The source would wait for an hour, but is told when a timer is due, and to begin a batch."""
    RequestLog(root).append([heartbeat("a", "g")])
    coordinator = start(make_machine=Once, trigger_max_interval_ms=3_600_000)
    await_rows(root, "responses", {"r0"})
    then = coordinator.running_query.sink.batches

    def go_on() -> None:
        coordinator.check()
        coordinator.running_query.sink.wake()

    wait_until(
        "five batches",
        lambda: coordinator.running_query.sink.batches >= then + 5,
        WAIT_S,
        go_on,
        0.05,
    )
    assert counts(root)["responses"] == 2, "one for the group, one for what woke the stream"
    # A batch that is waited for in vain is waited for until the test's own time limit.
    monkeypatch.setattr(spark_engine, "_BATCH_WAIT_S", 3_600.0)
    coordinator.stop()


class Broken:
    """A machine with a defect outside of all that it guards."""

    def set_settings(self, _settings):
        pass

    def process(self, *_):
        raise LookupError("no such luck")


def test_a_failed_query_is_named_in_one_line(start):
    with pytest.raises(QueryFailed) as failed:
        start(make_machine=Broken).await_ready(WAIT_S)
    assert str(failed.value) == "LookupError: no such luck"


def test_a_stream_goes_on_when_what_it_consumed_is_trimmed(start, root, monkeypatch):
    monkeypatch.setattr(writer, "CHECKPOINT_EVERY", 5)
    monkeypatch.setattr(log_trim, "GRACE_S", 0)
    requests = RequestLog(root)
    running = start(state_store="memory")
    running.await_ready(WAIT_S)
    for n in range(12):
        requests.append([heartbeat(f"before-{n}", "g")])
    await_rows(root, "responses", {f"before-{n}" for n in range(12)})
    log = Path(table_uri(root, REQUESTS)) / "_delta_log"
    wait_until("something is consumed", running.trim, WAIT_S)
    assert not (log / f"{0:020}.json").exists()
    requests.append([heartbeat("after", "g")])
    await_rows(root, "responses", {"after"})
    running.stop()
    again = start(state_store="memory")
    requests.append([heartbeat("later", "g")])
    await_rows(root, "responses", {"later"})
    again.stop()
