"""A node goes on, whichever of its commits fails once; and so it does after a read that fails."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.coordinator.ownership import lease_app_id
from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta.commit import Commit
from group_coordinator.pipeline.delta.log import Log
from group_coordinator.pipeline.delta.storage import CommitStateUnknown
from group_coordinator.pipeline.node import query
from group_coordinator.pipeline.node.node import start
from group_coordinator.pipeline.node.read_ahead import ReadAhead
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.schemas.records import OFFSET_COMMIT, CoordinatorRecord, OffsetCommitValue
from tests.pipeline.node.fake_engine import FakeEngine, FakeQuery
from tests.pipeline.node.looks import PARTITIONS, Clock, node_settings, until
from tests.pipeline.rows import output
from tests.roots import make_tables

pytestmark = pytest.mark.full

GROUPS = tuple(f"g{number}" for number in range(2 * PARTITIONS))
LEASE = lease_app_id(1)[:-1].encode()


class Commits:
    """Counts commits, but for leases; the one with the number `fails` fails.

    `stands`: it is in the table all the same, and nobody knows.
    """

    def __init__(self, fails: int, stands: bool) -> None:
        self.count = 0
        self._fails = fails
        self._stands = stands

    @property
    def has_failed(self) -> bool:
        return self.count >= self._fails

    def instead_of(self, create: Callable[..., None]) -> Callable[..., None]:
        def creating(log: Log, commit: Commit, version: int) -> None:
            # A lease is renewed by a thread of its own, which tries again by itself.
            self.count += LEASE not in commit.content
            fails = self.count == self._fails and LEASE not in commit.content
            if self._stands or not fails:
                create(log, commit, version)
            if fails and self._stands:
                raise CommitStateUnknown("no answer")
            if fails:
                raise OSError(errno.ENOSPC, "No space left on device")

        return creating


@contextmanager
def failing_commits(fails: int, stands: bool) -> Iterator[Commits]:
    commits = Commits(fails, stands)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "create", commits.instead_of(Log.create))
        yield commits


def write_groups(root: str) -> None:
    value = OffsetCommitValue(7, -1, "", 5)
    records = [
        CoordinatorRecord(partition_for(g, PARTITIONS), OFFSET_COMMIT, g, 5, None, "t", 0, value)
        for g in GROUPS
    ]
    Sink(root, CoordinatorSettings()).write([output(0, records)], "test", 0)


def loaded(engine: FakeEngine) -> list[str]:
    """The groups that the bootstrap loads, each as often as it does."""
    rows = DeltaTable(engine.bootstraps[-1].uri).to_pyarrow_table().to_pylist()
    return sorted(row["group_id"] for row in rows if '"control":"load"' in row["event"])


def story(root: str) -> Iterator[None]:
    """A node joins another one and is given its share, which goes back when it stops.

    Yields once both have started.
    """
    make_tables(root)
    write_groups(root)
    engines = {1: FakeEngine(), 2: FakeEngine()}
    nodes = {1: start(engines[1], root, node_settings(1))}
    decisions = DecisionLog(root)
    try:
        until(nodes, lambda: decisions.read().nodes[1].ready)
        nodes[2] = start(engines[2], root, node_settings(2))
        yield
        until(nodes, lambda: len(decisions.read().owned_by(2)) == PARTITIONS // 2)
        until(nodes, lambda: not any(node.pause_s() < 0.1 for node in nodes.values()))
        theirs = set(decisions.read().owned_by(2))
        wanted = [g for g in GROUPS if partition_for(g, PARTITIONS) in theirs]
        assert loaded(engines[2]) == sorted(wanted)
        nodes.pop(2).stop()
        until(nodes, lambda: len(decisions.read().owned_by(1)) == PARTITIONS)
        until(nodes, lambda: nodes[1].pause_s() >= 0.1)
        assert loaded(engines[1]) == sorted([*GROUPS, *wanted])
        assert set(engines[1].queries[-1].changes[-1].claims or ()) == set(range(PARTITIONS))
    finally:
        for node in nodes.values():
            node.abandon()


@pytest.mark.parametrize("stands", [True, False], ids=["unknown", "full"])
def test_a_commit_that_fails_once_does_not_end_a_node(tmp_path: Path, stands: bool) -> None:
    fails = 0
    has_failed = True
    while has_failed:
        fails += 1
        with clock.use(Clock()):
            node_story = story(str(tmp_path / str(fails)))
            next(node_story)
            with failing_commits(fails, stands) as commits:
                assert list(node_story) == []
        has_failed = commits.has_failed
    assert fails > 10


@pytest.mark.parametrize(
    ("owner", "name", "fails"),
    [
        (query, "newest_claim", 1),
        (query, "bootstrap_end", 1),
        (FakeQuery, "change", 1),
        (ReadAhead, "read_on", 1),
        (ReadAhead, "read_on", 2),
        (ReadAhead, "read_on", 3),
    ],
)
def test_nor_does_a_read_that_fails_once(
    root: str, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fails: int
) -> None:
    does, calls = getattr(owner, name), list[int]()

    def fail(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == fails:
            raise OSError(errno.EMFILE, "Too many open files")
        return does(*arguments, **named)

    with clock.use(Clock()):
        node_story = story(root)
        next(node_story)
        monkeypatch.setattr(owner, name, fail)
        assert list(node_story) == []
    assert len(calls) > fails
