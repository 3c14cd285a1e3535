"""Resumption: what a node's process takes over of the streaming checkpoints of earlier ones.

A *start* is one process of a node, with the epoch that it got when it started.

# Folders

Two processes may run under one node id, because a node that was considered dead may continue. The
later start has fenced the earlier one from every table, but a streaming checkpoint has no epochs:
the earlier start could delete it or write into it. So each start has a folder named after its
epoch, and takes the folder of the previous start by an atomic rename, the commit point. Later
writes of the earlier start go to a folder that no process reads.

* The rename comes after the fencing. Between the two, the earlier start can only plan a batch,
  which is repeated, or end a batch without output.
* Only the newest folder is taken, whatever its content, and each start has a folder from its
  beginning. So a folder that an earlier start recreates is never taken by a start after the next
  one.
* If the folders are on a local disk and the tables are elsewhere, only the previous start's folder
  is taken, because the node may have run on another machine before.
* If the store has no atomic rename of folders, no folder is taken.

The writers of tables cannot reach HDFS. If Spark's streaming checkpoint is there, the bootstrap and
the pinned settings of its batches are in a folder next to the root's tables. A start then renames
both folders, Spark's first. If it is killed in between, the next start takes neither, because a
checkpoint is useless without its tables. If the root is in an object store, no start takes them.

# Decision

A start resumes from the streaming checkpoint in the folder if all of these conditions hold:

* The checkpoint has a planned batch. Without one, its first batch may begin with any bootstrap.
* The bootstrap in the folder records the beginning of the first batch, and the last batch was
  planned with this project's source.
* No table has a later batch of its query. Otherwise the checkpoint is an older copy, as from a
  restored disk: its next batches would count as written, and their requests would stay unanswered.
* The checkpoint has read the present table of requests, not one that was replaced since.
* The bootstrap has all versions that the checkpoint has read.
* No later start of the node has begun another stream.
* Its group states have this release's version (`coordinator.group.group_snapshot`).
* The bootstrap has at least one present claim of the node. If all claims are later, other nodes
  have decided for all of its partitions since.

Otherwise the checkpoint counts as lost, and the groups are loaded from the tables
(`pipeline.node.bootstrap`).
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from deltalake import write_deltalake
from msgspec import Struct

from group_coordinator.coordinator.group.group_snapshot import VERSION
from group_coordinator.pipeline.delta import ObjectStore, is_table, local_folder
from group_coordinator.pipeline.node.bootstrap import (
    bootstrap_end,
    is_newest_stream,
    newest_claim,
    number_of_requests_table,
    prepared_bootstrap,
)
from group_coordinator.pipeline.stream.offset import offset_of
from group_coordinator.pipeline.stream.packed_events import PACKED_SCHEMA
from group_coordinator.pipeline.tables import last_written

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from group_coordinator.pipeline.delta import Epoch
    from group_coordinator.pipeline.node.stream_engine import StreamEngine
    from group_coordinator.pipeline.stream.offset import Bootstrap, Planned

log = logging.getLogger(__name__)


# The schemes of Hadoop's stores, which only Spark can reach.
_SPARK_ONLY = ("hdfs", "viewfs")

# How many earlier starts are searched for folders, which are then deleted. Each start has taken or
# made a folder, unless it was killed within its first moments.
_REMEMBERED_STARTS = 20


def checkpoint_uri(root: str, node_id: int, location: str = "") -> str:
    """Return the prefix of the folders of a node's starts.

    Without `location`, they are next to the root's tables.
    """
    return f"{location or root.rstrip('/') + '/_checkpoints'}/group-coordinator-{node_id}"


def stream_uri(folder: str) -> str:
    """Return the streaming checkpoint in a start's folder: the query's offsets and state."""
    return f"{folder}/stream"


def bootstrap_uri(folder: str) -> str:
    """Return the URI of the bootstrap's table in a start's folder."""
    return f"{folder}/bootstrap"


def tables_folder(root: str, epoch: Epoch, location: str = "") -> str:
    """Return the folder of a start's tables: the start's folder, unless only Spark can reach it.

    Then it is a folder next to the root's tables.
    """
    reached = "" if urlparse(location).scheme in _SPARK_ONLY else location
    return _of_start(checkpoint_uri(root, epoch.node_id, reached), epoch.number)


def take_folder(
    engine: StreamEngine, root: str, epoch: Epoch, starts: Iterable[int], location: str = ""
) -> str:
    """Return the folder of the start with this epoch, with the content of the previous start.

    `starts` are the epochs of the node's starts; earlier ones must already be fenced. The previous
    start's tables are moved to `tables_folder`.
    """
    here = checkpoint_uri(root, epoch.node_id, location)
    folder = _of_start(here, epoch.number)
    tables = tables_folder(root, epoch, location)
    beside = tables.rpartition("/")[0]
    earlier = sorted(number for number in starts if number < epoch.number)[-_REMEMBERED_STARTS:]
    earlier.reverse()
    # If the disk is not that of the tables, starts on other machines have left no folder here, and
    # older folders may date from before them.
    takeable = earlier[:1] if location else earlier
    if not any(_take(engine, here, beside, number, epoch.number) for number in takeable):
        write_deltalake(bootstrap_uri(tables), PACKED_SCHEMA.empty_table(), mode="ignore")
    for number in earlier:
        # The folder was recreated by an earlier start, or could not be taken.
        engine.delete_checkpoint(_of_start(here, number))
        if beside != here:
            _delete_tables(_of_start(beside, number))
    return folder


def _of_start(place: str, number: int) -> str:
    return f"{place}/epoch-{number}"


def _take(engine: StreamEngine, here: str, beside: str, theirs: int, mine: int) -> bool:
    """Take the folder of a start, and its tables if they are elsewhere; either both or neither."""
    if not engine.move(_of_start(here, theirs), _of_start(here, mine)):
        return False
    if beside == here or _move_tables(_of_start(beside, theirs), _of_start(beside, mine)):
        return True
    engine.delete_checkpoint(_of_start(here, mine))
    return False


def _move_tables(folder: str, target: str) -> bool:
    """Rename a folder of tables; return False if it is missing or not on a local disk."""
    tables, there = local_folder(folder), local_folder(target)
    if tables is None or there is None or not tables.is_dir():
        return False
    shutil.rmtree(there, ignore_errors=True)
    tables.rename(there)
    return True


def _delete_tables(folder: str) -> None:
    tables = local_folder(folder)
    if tables is not None:
        shutil.rmtree(tables, ignore_errors=True)
        return
    store = ObjectStore(folder)
    store.delete([each.path for each in store.list()])


class Resumption(Struct, frozen=True):
    """A streaming checkpoint to resume from.

    `planned` is its last planned batch, `bootstrap` the bootstrap that it began with, and `claim`
    the epoch of the newest claim in that bootstrap.
    """

    planned: Planned
    bootstrap: Bootstrap
    claim: int


def find_resumption(
    engine: StreamEngine,
    root: str,
    checkpoint: str,
    bootstrap_uri: str,
    claims: Collection[int],
    node_id: int,
) -> Resumption | None:
    """Return the checkpoint that a process resumes from; None if it must begin a new one.

    `claims` are the epochs of the node's claims. Earlier processes of the node must already be
    fenced. The log says why a streaming checkpoint counts as lost.
    """
    planned = engine.last_planned(checkpoint)
    if planned is None or not is_table(bootstrap_uri):
        return None
    bootstrap = prepared_bootstrap(bootstrap_uri)
    written = -1 if planned.query_id is None else last_written(root, planned.query_id)
    reason = loss_reason(planned, bootstrap, written)
    if reason is None and bootstrap is not None and reads_another_table(root, bootstrap):
        reason = "has read another table of requests than the present one"
    if reason is None and lacks_read(planned, bootstrap_end(bootstrap_uri)):
        reason = "has read more of its bootstrap than exists, as after a restore"
    if reason is None and not is_newest_stream(root, bootstrap_uri, node_id):
        reason = "is older than another one that this node has started since, as after a restore"
    if reason is not None or bootstrap is None:
        log.warning("the streaming checkpoint %s: the groups are loaded from the tables", reason)
        return None
    found = Resumption(planned, bootstrap, newest_claim(bootstrap_uri))
    return None if is_void(found, claims) else found


def loss_reason(planned: Planned, bootstrap: Bootstrap | None, written: int) -> str | None:
    """Return why this release cannot resume from a streaming checkpoint; None if it can.

    `written` is the last batch of its query in the tables, -1 if there is none.
    """
    if bootstrap is None or offset_of(planned.offset) is None:
        return "was written by another source or release"
    if planned.query_id is None:
        return "has no query id"
    if written > planned.batch_id:
        return (
            f"is older than the tables, as after a restore: they have batch {written} of its "
            f"query, and it has planned only batch {planned.batch_id}"
        )
    if bootstrap.state_version != VERSION:
        return (
            f"has group states of version {bootstrap.state_version}, "
            f"and this release reads version {VERSION}"
        )
    return None


def reads_another_table(root: str, bootstrap: Bootstrap) -> bool:
    """Whether the table of requests was replaced since a stream began."""
    return bootstrap.requests_table not in (None, number_of_requests_table(root))


def lacks_read(planned: Planned, end: int) -> bool:
    """Whether a batch has read rows of a bootstrap from `end` or a later version."""
    offset = offset_of(planned.offset)
    return offset is not None and offset.bootstrap.version > end


def is_void(found: Resumption, claims: Collection[int]) -> bool:
    """Whether all claims are later than the bootstrap's, so other nodes have decided since."""
    return not claims or found.claim < min(claims)
