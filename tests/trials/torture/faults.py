"""Faults of the coordinators of a root, and of the root itself."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pyarrow as pa
from deltalake import write_deltalake

from group_coordinator.pipeline.clock import clock_ms, monotonic, sleep
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.ownership.partitions import move, open_decisions
from group_coordinator.pipeline.tables import add_acls, table_uri
from group_coordinator.schemas.acls import ANY_HOST, ANY_NAME, ANY_PRINCIPAL, AclBinding
from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.tables import ACLS, REQUESTS, to_requests
from tests.trials.torture.disk import Disk
from tests.trials.torture.load import Key, commit_body
from tests.trials.torture.nodes import Cluster, Node
from tests.trials.torture.reads import FailingReads

_FULL_S = (0.5, 4.0)
_UNREADABLE_S = (0.5, 4.0)
_AWAY_S = (0.0, 3.0)
# The share of reads that fail: a batch in ten meets one, or each start does.
_SHARES = (0.002, 0.02, 0.2)
_PAUSE_MORE_S = (0.5, 4.0)
_LOOK_S = 0.01
# The share of killed nodes that lose their streaming checkpoint before their next start.
_FORGETFUL = 0.3
# For a draw from `_FORGETFUL` up to this the checkpoint is copied, or a copy put back.
_RESTORED = 0.6
# The state, in the log, of a killed node that was not ready.
STARTING = "starting"


class Stage(NamedTuple):
    """The target of faults; `disk` is None if no disk may be filled.

    `reads` makes reads fail in the processes of all nodes.
    """

    root: str
    partitions: int
    lease_s: float
    cluster: Cluster
    disk: Disk | None
    random: Random
    reads: FailingReads

    def node(self) -> Node | None:
        """Return a random node that is not paused; None if there is none."""
        nodes = [node for node in self.cluster.nodes if not node.is_paused]
        return self.random.choice(nodes) if nodes else None


class Fault(NamedTuple):
    """A fault: `act` performs it and returns a description; None if it was not possible."""

    name: str
    act: Callable[[Stage], str | None]


def _hit(
    how: Callable[[Node, Random], bool], what: str, forgetful: float = _FORGETFUL
) -> Callable[[Stage], str | None]:
    def act(stage: Stage) -> str | None:
        with stage.cluster.lock:
            node = stage.node()
            if node is None:
                return None
            state = "ready" if node.is_ready() else STARTING
            if not how(node, stage.random):
                return None
            draw = stage.random.random()
            node.forgets = node.forgets or draw < forgetful
            node.is_restored = not node.forgets and forgetful > 0.0 and draw < _RESTORED
        return f"{what} node {node.node_id}, {state}"

    return act


DRIVER = Fault("driver", _hit(lambda node, _: node.kill_driver(), "kill the driver's Python of"))
JVM = Fault("jvm", _hit(lambda node, _: node.kill_jvm(), "kill the JVM of"))
WORKER = Fault(
    "worker", _hit(lambda node, r: node.kill_worker(r.randrange(100)), "kill a Python worker of")
)
NODE = Fault("node", _hit(lambda node, _: node.kill_node(), "kill all processes of"))
KILLS = (DRIVER, JVM, WORKER, NODE)
# A kill after which the node surely starts without its streaming checkpoint.
LOSS = Fault("node", _hit(lambda node, _: node.kill_node(), "kill all processes of", 1.0))


def _pause(stage: Stage) -> str | None:
    """Pause one or two nodes for longer than their lease."""
    with stage.cluster.lock:
        nodes = stage.cluster.nodes
        if len(nodes) < 2 or any(each.is_paused for each in nodes):
            return None
        paused = []
        for node in stage.random.sample(nodes, stage.random.choice((1, 2))):
            seconds = stage.lease_s + stage.random.uniform(*_PAUSE_MORE_S)
            if node.pause(seconds):
                paused.append(f"node {node.node_id} for {seconds:.1f} s")
    return f"pause {' and '.join(paused)}" if paused else None


def _stand_still(stage: Stage) -> str | None:
    """Pause a node until the other nodes have taken over its partitions.

    All nodes must be ready, and there is no other fault meanwhile: nodes that are starting do not
    take over within a pause, so the paused node would not be fenced.
    """
    with stage.cluster.lock:
        nodes = stage.cluster.nodes
        if len(nodes) < 2 or not all(each.is_ready() for each in nodes):
            return None
        node = stage.random.choice(nodes)
        seconds = stage.lease_s + stage.random.uniform(*_PAUSE_MORE_S)
        if not node.pause(seconds):
            return None
    sleep(seconds)
    return f"pause node {node.node_id} for {seconds:.1f} s, all others ready"


def _fail_reads(stage: Stage) -> str:
    """Make reads fail in the processes of all nodes for some seconds."""
    seconds, share = stage.random.uniform(*_UNREADABLE_S), stage.random.choice(_SHARES)
    with stage.cluster.excusing("reads that failed"):
        stage.reads.begin(share)
        try:
            sleep(seconds)
        finally:
            stage.reads.end()
    return f"{share:.1%} of all reads failed for {seconds:.1f} s"


def _move(stage: Stage) -> str | None:
    """Move a partition to another node, which need not run."""
    partition = stage.random.randrange(stage.partitions)
    decisions = open_decisions(stage.root)
    state = decisions.read().partitions.get(partition)
    others = [n.node_id for n in stage.cluster.nodes if state is None or n.node_id != state.owner]
    if not others:
        return None
    to_node = stage.random.choice(others)
    try:
        move(decisions, partition, to_node)
    except Failure:
        # It is on its way already, or that node has not started yet.
        return None
    return f"move partition {partition} to node {to_node}"


def _insert(stage: Stage) -> str:
    """Append requests with delta-rs, as any program may."""
    count = stage.random.randrange(1, 20)
    events = []
    for number in range(count):
        group_id = f"foreign-{number % 3}"
        request_id = f"foreign-{uuid.uuid4()}"
        events.append(
            RequestEvent(
                request_id=request_id,
                group_id=group_id,
                api="offset_commit",
                sent_at=clock_ms(),
                offset_commit=commit_body(Key(group_id, request_id, 0), number),
            )
        )
    rows: pa.Table = to_requests(events)
    write_deltalake(table_uri(stage.root, REQUESTS), rows, mode="append")
    return f"insert {count} requests by delta-rs"


def _fill(stage: Stage) -> str | None:
    """Leave no room on the root's disk for a moment."""
    if stage.disk is None:
        return None
    seconds = stage.random.uniform(*_FULL_S)
    until = monotonic() + seconds
    with stage.cluster.excusing("a full disk"):
        try:
            while monotonic() < until:
                # Space that other processes free is filled again.
                stage.disk.fill()
                sleep(_LOOK_S)
        finally:
            stage.disk.free()
    return f"a full disk for {seconds:.1f} s"


def _remake_acls(stage: Stage) -> str:
    """Delete the table of ACLs and create it again, as the product's messages advise.

    Clients of the tables have no principal, so the ACLs allow all operations to all principals.
    """
    folder = Path(table_uri(stage.root, ACLS))
    anybody = (ANY_PRINCIPAL, ANY_HOST, "ALL", "ALLOW")
    allowed = [AclBinding(kind, ANY_NAME, "LITERAL", *anybody) for kind in ("GROUP", "TOPIC")]
    with stage.cluster.excusing("ACLs that are made anew"):
        if not folder.exists():
            add_acls(stage.root, allowed)
            sleep(stage.random.uniform(*_AWAY_S))
        shutil.rmtree(folder)
        sleep(stage.random.uniform(*_AWAY_S))
        add_acls(stage.root, allowed, anew=True)
    return "the ACLs are deleted and made again"


PAUSE = Fault("pause", _pause)
STAND_STILL = Fault("pause", _stand_still)
MOVE = Fault("move", _move)
# An orderly stop; another fault may interrupt it.
STOP = Fault("stop", _hit(lambda node, _: node.stop(), "stop", 0.0))
READS = Fault("failing reads", _fail_reads)
REMAKE = Fault("recreated ACLs", _remake_acls)
OTHERS = (
    PAUSE,
    MOVE,
    STOP,
    READS,
    REMAKE,
    Fault("insert", _insert),
    Fault("full disk", _fill),
)
