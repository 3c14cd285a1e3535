"""Tests of the torture without its faults: the text of failures, and which ends are excused."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from group_coordinator.pipeline.delta.appender import Epoch, FencedError
from group_coordinator.pipeline.node.process import descendants
from group_coordinator.pipeline.node.resumption import checkpoint_uri, stream_uri
from group_coordinator.pipeline.tables import ensure_tables, read_acls, table_uri
from group_coordinator.schemas.tables import ACLS
from tests.ends import check_end
from tests.trials.__main__ import trial_app as app
from tests.trials.torture import nodes, run
from tests.trials.torture.disk import small_disk
from tests.trials.torture.faults import PAUSE, REMAKE, Stage
from tests.trials.torture.nodes import Cluster, Node, NodeEnded
from tests.trials.torture.reads import FailingReads
from tests.waiting import wait_until


class Ended(Cluster):
    """Coordinators that include one which ends."""

    def __init__(self) -> None:
        self.nodes = []
        self.lock = threading.RLock()

    def settle(self) -> None:
        raise NodeEnded("node 1 ended by itself")

    def heard(self) -> list[tuple[float, str]]:
        return [(0.0, "node 1 was started")]


def test_a_failure_tells_the_seed_and_keeps_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def running(*_: object) -> Iterator[Ended]:
        yield Ended()

    monkeypatch.setattr(run, "running_cluster", running)
    monkeypatch.setattr(run, "make_archive", lambda _say: None)
    said: list[str] = []
    with pytest.raises(run.Broken, match="node 1 ended by itself\nseed 7; the last actions"):
        run.torture(3, None, said.append, seed=7)
    folder = Path(said[-1].rpartition(" ")[2])
    kept = [
        each for each in (folder / "root", folder / "kept-root") if (each / "requests").exists()
    ]
    assert kept
    subprocess.run(["rm", "-r", folder], check=True)


def test_how_long_it_goes_on_must_be_said() -> None:
    result = CliRunner().invoke(app, ["torture"])
    assert result.exit_code == 2
    assert "--kills, or --minutes, or both" in result.output


class Process:
    """A coordinator's process that starts nothing."""

    made: ClassVar[list[Process]] = []

    def __init__(self, *_: object, **__: object) -> None:
        Process.made.append(self)
        self.ended = False
        self.status = 0
        self.pid = -1

    def has_ended(self) -> bool:
        return self.ended

    def is_ready(self) -> bool:
        return True

    def last_lines(self) -> str:
        return "out of memory"

    def ask_to_stop(self) -> None:
        pass

    def wait(self, _timeout_s: float) -> int:
        return self.status

    def kill(self) -> None:
        self.ended = True


@pytest.fixture
def node(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(nodes, "KillableCoordinator", Process)
    monkeypatch.setattr(Process, "made", [])
    checkpoint = Path(stream_uri(f"{checkpoint_uri(root, 1)}/epoch-3"))
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"query-1"}')
    return Node(root, tmp_path / "c.toml", tmp_path, 1)


def test_what_was_killed_is_started_again(node: Node, root: str) -> None:
    assert node.tend() is None
    assert node.query_ids == {"query-1"}
    assert node.kill_node()
    assert node.tend() == "node 1 is started again after a kill"
    assert len(Process.made) == node.starts == 2
    assert Path(checkpoint_uri(root, 1)).exists()
    assert node.kill_node()
    node.forgets = True
    assert node.tend() == ("node 1 is started again after a kill, without its streaming checkpoint")
    assert not Path(checkpoint_uri(root, 1)).exists()


def test_an_older_copy_of_a_checkpoint_is_put_back(node: Node, root: str) -> None:
    note = Path(checkpoint_uri(root, 1)) / "note"
    for wanted, said in (
        ("before", "node 1 is started again after a kill"),
        (
            "after",
            "node 1 is started again after a kill, with an older copy of its streaming checkpoint",
        ),
    ):
        note.write_text(wanted)
        node.is_restored = True
        assert node.kill_node()
        assert node.tend() == said
    assert note.read_text() == "before"
    assert node.restored == 1
    assert not node.is_restored


def test_acls_are_made_and_made_anew(root: str) -> None:
    ensure_tables(root)
    cluster = Ended()
    reads = FailingReads(Path(root, "reads"), root)
    stage = Stage(root, 4, 8.0, cluster, None, Random(1), reads)
    assert REMAKE.act(stage) == "the ACLs are deleted and made again"
    acls = read_acls(root)
    assert acls
    before = DeltaTable(table_uri(root, ACLS)).metadata().id
    assert REMAKE.act(stage) == "the ACLs are deleted and made again"
    assert DeltaTable(table_uri(root, ACLS)).metadata().id != before
    assert read_acls(root) == acls


@pytest.mark.parametrize(("process", "must_end"), [("jvm", True), ("worker", False)])
def test_a_node_is_not_ready_until_it_had_time_to_end_after_a_kill(
    node: Node, monkeypatch: pytest.MonkeyPatch, process: str, must_end: bool
) -> None:
    """To forgive the kill before that would be to blame the coordinator for its end."""
    now = 100.0
    monkeypatch.setattr(nodes, "monotonic", lambda: now)
    assert node.is_ready()
    with subprocess.Popen(["sleep", "60"]) as victim:
        monkeypatch.setattr(nodes, "jvm_of", lambda _driver: victim.pid)
        monkeypatch.setattr(nodes, "workers_of", lambda _driver: [victim.pid])
        assert node.kill_jvm() if process == "jvm" else node.kill_worker(7)
        check_end(victim.wait(), expected=-signal.SIGKILL)
    assert not node.is_ready()
    now += 5.0
    assert node.is_ready() is not must_end
    node.kill_node()
    node.tend()
    assert node.is_ready()


def test_an_end_without_a_fault_is_one_of_the_coordinator(node: Node) -> None:
    node.kill_node()
    node.hit = None
    with pytest.raises(NodeEnded, match="node 1 ended by itself: out of memory"):
        node.tend()


def test_a_node_that_is_told_to_end_is_not_ready_until_it_was_started_again(node: Node) -> None:
    assert node.stop()
    assert node.tend() is None, "it hands its partitions over"
    assert not node.is_ready()
    Process.made[-1].kill()
    assert not node.stop(), "it has ended"
    assert node.tend() == "node 1 is started again after a stop in order"
    assert node.is_ready()


@pytest.mark.parametrize("before", [None, "a pause"])
def test_a_node_that_is_told_to_end_does_so_in_order_if_nothing_else_was_done_to_it(
    node: Node, before: str | None
) -> None:
    node.hit = before
    node.stop()
    Process.made[-1].kill()
    Process.made[-1].status = 1
    if before is not None:
        assert node.tend() is not None
        return
    with pytest.raises(NodeEnded, match="node 1 ended with status 1, not in order: out of memory"):
        node.tend()


@pytest.mark.usefixtures("node")
def test_a_node_that_is_started_on_a_full_disk_is_excused_too(root: str, tmp_path: Path) -> None:
    """However long the disk takes to be filled: a node ends whenever it writes."""
    cluster = Cluster(root, tmp_path / "c.toml", tmp_path, 1)
    try:
        with cluster.excusing("a full disk"):
            for _ in range(3):
                starts = cluster.nodes[0].starts
                with cluster.lock:
                    Process.made[-1].kill()
                wait_until(
                    "it starts again", lambda starts=starts: cluster.nodes[0].starts > starts
                )
        with cluster.lock:
            Process.made[-1].kill()
        wait_until("it starts a fifth time", lambda: cluster.nodes[0].starts == 5)
        cluster.check()
        with cluster.lock:
            Process.made[-1].kill()
        with pytest.raises(NodeEnded):
            wait_until("its end is found", cluster.check)
    finally:
        cluster.stop()


def test_whoever_was_taken_for_dead_is_excused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Process, "last_lines", lambda _: str(FencedError("t", Epoch(1, 3), 4)))
    node.kill_node()
    node.hit = None
    assert node.tend() == "node 1 is started again after a lease that was renewed too late"


def test_a_coordinator_that_was_fenced_is_counted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.kill_node()
    node.tend()
    monkeypatch.setattr(Process, "last_lines", lambda _: str(FencedError("t", Epoch(1, 3), 4)))
    node.kill_node()
    node.tend()
    assert (node.starts, node.fenced) == (3, 1)


class Standing:
    """A node that can be paused."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.is_paused = False

    def pause(self, _seconds: float) -> bool:
        self.is_paused = True
        return True


def test_nodes_stand_still_one_alone_and_two_at_once(root: str) -> None:
    counts = set()
    for seed in range(20):
        cluster = Ended()
        cluster.nodes = [Standing(1), Standing(2), Standing(3)]  # type: ignore[list-item]
        reads = FailingReads(Path(root, "reads"), root)
        stage = Stage(root, 4, 8.0, cluster, None, Random(seed), reads)
        said = PAUSE.act(stage)
        assert said is not None
        still = [node for node in cluster.nodes if node.is_paused]
        assert all(f"node {node.node_id} for " in said for node in still)
        assert PAUSE.act(stage) is None, "not before they go on"
        counts.add(len(still))
    assert counts == {1, 2}


def test_a_trial_of_pauses_that_fenced_nobody_proves_nothing() -> None:
    assert not report({"pause": 4}, 0).unproven()
    assert not report({"pause": 5}, 1).unproven()
    (told,) = report({"pause": 5}, 0).unproven()
    assert told == "of 5 pauses longer than a lease no coordinator was fenced"


def report(others: dict[str, int], fenced: int) -> run.TortureReport:
    counts = dict.fromkeys(run.TortureReport.__struct_fields__, 0)
    return run.TortureReport(**{**counts, "others": others, "fenced": fenced})  # type: ignore[arg-type]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux lists processes")
def test_what_a_process_started_is_found_and_what_has_ended_is_not() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as parent:
        found = wait_until("it has started one", lambda: descendants(parent.pid))
        assert [child.parent for child in found] == [parent.pid]
        os.kill(found[0].pid, signal.SIGKILL)
        parent.wait()
    assert descendants(parent.pid) == []


@pytest.mark.long
def test_a_full_disk_refuses_and_takes_again(tmp_path: Path) -> None:
    with small_disk(tmp_path, "16m") as disk:
        assert disk is not None, "only root may mount a disk"
        disk.fill()
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            (tmp_path / "file").write_bytes(bytes(4096))
        disk.free()
        (tmp_path / "file").write_bytes(bytes(4096))
    assert not (tmp_path / "file").exists()
