"""The folder of each start of a node, with its streaming checkpoint and its bootstrap.

Two processes may run under one node id at a time, because a node that was considered dead may
continue. The later start has fenced the earlier one from every table. But a streaming checkpoint
has no epochs: the earlier start could delete it or write into it. So each start has a separate
folder, named after its epoch. It takes the folder of the start before by an atomic rename. Later
writes of the earlier start go to a folder that no process reads.

* The rename comes after the fencing. Between the two, the earlier start can only plan a batch,
  which is run again, or end a batch without output.
* Only the newest folder is taken, whatever its content, and each start has a folder from its
  beginning. So a folder that an earlier start recreates is never taken by a start after the next
  one.
* If the folders are on a local disk and the tables are elsewhere, only the folder of the start just
  before is taken. After an earlier start, the node may have run on another machine.
* If the store has no atomic rename of folders, no folder is taken: the start begins with a new
  streaming checkpoint from the tables.

The writers of tables cannot reach HDFS. If Spark's streaming checkpoint is in HDFS, the bootstrap
and the pinned settings are in a folder next to the root's tables. Then a start renames both
folders, Spark's first. A streaming checkpoint without the tables of its start is useless. So if a
start was killed between the two renames, the next start takes neither folder. If the root is in an
object store, no start takes them.

The rename is the commit point. A crash before it changes nothing. After a later crash, the next
start takes the renamed folder.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from deltalake import write_deltalake

from group_coordinator.pipeline.delta import ObjectStore, local_folder
from group_coordinator.pipeline.stream.packed import PACKED_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from group_coordinator.pipeline.delta import Epoch
    from group_coordinator.pipeline.node.engine import StreamEngine

# The schemes of Hadoop's stores, which only Spark can reach.
_SPARK_ONLY = ("hdfs", "viewfs")

# How many earlier starts are searched for folders, which are then deleted. Each start has taken or
# made a folder, unless it was killed within its first moments.
_REMEMBERED_STARTS = 20


def checkpoint_uri(root: str, node_id: int, location: str = "") -> str:
    """Return the prefix of the folders of a node's starts.

    `location` "" places them next to the root's tables.
    """
    return f"{location or root.rstrip('/') + '/_checkpoints'}/group-coordinator-{node_id}"


def stream_uri(folder: str) -> str:
    """Return the streaming checkpoint in a start's folder: the query's progress and groups."""
    return f"{folder}/stream"


def bootstrap_uri(folder: str) -> str:
    """Return the bootstrap's table in a start's folder."""
    return f"{folder}/bootstrap"


def tables_folder(root: str, epoch: Epoch, location: str = "") -> str:
    """Return the folder of a start's tables: the start's folder, if the writers of tables reach it.

    If only Spark reaches it, the tables are in a folder next to the root's tables.
    """
    reached = "" if urlparse(location).scheme in _SPARK_ONLY else location
    return _of_start(checkpoint_uri(root, epoch.node_id, reached), epoch.number)


def take_folder(
    engine: StreamEngine, root: str, epoch: Epoch, starts: Iterable[int], location: str = ""
) -> str:
    """Return the folder of a start, with the content that the start before has left.

    `starts` are the epochs of the node's starts. Earlier starts must already be fenced, for the
    reason given in the module's docstring. The tables of the start before are moved to
    `tables_folder`.
    """
    here = checkpoint_uri(root, epoch.node_id, location)
    folder = _of_start(here, epoch.number)
    tables = tables_folder(root, epoch, location)
    beside = tables.rpartition("/")[0]
    earlier = sorted(number for number in starts if number < epoch.number)[-_REMEMBERED_STARTS:]
    earlier.reverse()
    # If the disk is not that of the tables, starts on other machines have left no folder here.
    # Older folders may date from before such a start, which has answered requests.
    takeable = earlier[:1] if location else earlier
    if not any(_take(engine, here, beside, number, epoch.number) for number in takeable):
        write_deltalake(bootstrap_uri(tables), PACKED_SCHEMA.empty_table(), mode="ignore")
    for number in earlier:
        # A folder that an earlier start has recreated, or that could not be taken.
        engine.delete_checkpoint(_of_start(here, number))
        if beside != here:
            _delete_tables(_of_start(beside, number))
    return folder


def _of_start(place: str, number: int) -> str:
    return f"{place}/epoch-{number}"


def _take(engine: StreamEngine, here: str, beside: str, theirs: int, mine: int) -> bool:
    """Take the folder of a start and its tables, if these are elsewhere; either both or neither."""
    if not engine.move(_of_start(here, theirs), _of_start(here, mine)):
        return False
    if beside == here or _move_tables(_of_start(beside, theirs), _of_start(beside, mine)):
        return True
    engine.delete_checkpoint(_of_start(here, mine))
    return False


def _move_tables(folder: str, target: str) -> bool:
    """Rename a folder of tables that Spark does not use.

    Returns False if it does not exist, or is not on a local disk.
    """
    tables, there = local_folder(folder), local_folder(target)
    if tables is None or there is None or not tables.is_dir():
        return False
    shutil.rmtree(there, ignore_errors=True)
    tables.rename(there)
    return True


def _delete_tables(folder: str) -> None:
    """Delete a folder of tables that Spark does not use."""
    tables = local_folder(folder)
    if tables is not None:
        shutil.rmtree(tables, ignore_errors=True)
        return
    store = ObjectStore(folder)
    store.delete([each.path for each in store.list()])
