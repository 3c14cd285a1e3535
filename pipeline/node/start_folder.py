"""The folder of each start of a node: its streaming checkpoint and what lies beside it.

Two processes may have one node number at a time: a node that was taken for dead wakes up. The later
start has fenced the earlier one off from every table, but a streaming checkpoint knows no epochs:
the earlier start could delete it, or write into it. So each start has a folder of its own, named
after its epoch. It takes what the start before has left by renaming that start's folder, at once.
What the earlier start writes after that comes into a folder that nobody reads.

* The rename comes after the fence. Between the two, the earlier start can only plan a batch, which
  is run again, or end a batch that had no output.
* Only the newest folder is taken, whatever is in it, and each start has one from its first moment.
  So a folder that an earlier start makes anew is never taken by a start after the next one.
* Where the folders are on a disk of the machine, and the tables elsewhere, only the start just
  before is taken from: the node may have run on another machine since an earlier one.
* A store that cannot rename a folder at once gives nothing to take: the start begins afresh from
  the tables.

Where Spark keeps its streaming checkpoint in an HDFS, which the writers of tables do not reach, the
bootstrap and the pinned settings are in a folder beside the root's tables. Then a start renames the
two, Spark's first. Without the tables of its start a streaming checkpoint is worth nothing: the
start after one that was killed in between takes neither, nor does any where the root is in an
object store.

Killed before the rename, a start has changed nothing; killed after it, the next start takes the
folder from it.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from deltalake import write_deltalake

from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.table import local_folder
from group_coordinator.pipeline.stream.packed import PACKED_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from group_coordinator.pipeline.delta.epoch import Epoch
    from group_coordinator.pipeline.node.engine import StreamEngine

# Hadoop's own stores, by their schemes, which only Spark reaches.
_SPARK_ONLY = ("hdfs", "viewfs")

# Starts whose folders are looked for, and deleted. Each start but one that was killed within its
# first moments has taken or made its folder.
_REMEMBERED_STARTS = 20


def checkpoint_uri(root: str, node_id: int, location: str = "") -> str:
    """Where the folders of a node's starts lie; `location` "" is beside the root's tables."""
    return f"{location or root.rstrip('/') + '/_checkpoints'}/group-coordinator-{node_id}"


def stream_uri(folder: str) -> str:
    """The streaming checkpoint in a start's folder: how far its query is, and its groups."""
    return f"{folder}/stream"


def bootstrap_uri(folder: str) -> str:
    """The bootstrap's table in a start's folder."""
    return f"{folder}/bootstrap"


def tables_folder(root: str, epoch: Epoch, location: str = "") -> str:
    """Where a start's tables are: its folder, or one beside the root's if only Spark reaches it."""
    reached = "" if urlparse(location).scheme in _SPARK_ONLY else location
    return _of_start(checkpoint_uri(root, epoch.node_id, reached), epoch.number)


def take_folder(
    engine: StreamEngine, root: str, epoch: Epoch, starts: Iterable[int], location: str = ""
) -> str:
    """Return the folder of a start, with what the start before has left in it.

    `starts` are the epochs of the node's starts. The node must have been fenced: see above. What is
    taken of the tables is in `tables_folder`.
    """
    here = checkpoint_uri(root, epoch.node_id, location)
    folder = _of_start(here, epoch.number)
    tables = tables_folder(root, epoch, location)
    beside = tables.rpartition("/")[0]
    earlier = sorted(number for number in starts if number < epoch.number)[-_REMEMBERED_STARTS:]
    earlier.reverse()
    # On a disk that is not the tables' own, another machine's starts have left nothing: what is
    # there of an earlier start may be from before a start elsewhere, which answered requests.
    takeable = earlier[:1] if location else earlier
    if not any(_take(engine, here, beside, number, epoch.number) for number in takeable):
        write_deltalake(bootstrap_uri(tables), PACKED_SCHEMA.empty_table(), mode="ignore")
    for number in earlier:
        # What an earlier start has made anew, or what could not be taken.
        engine.delete_checkpoint(_of_start(here, number))
        if beside != here:
            _delete_tables(_of_start(beside, number))
    return folder


def _of_start(place: str, number: int) -> str:
    return f"{place}/epoch-{number}"


def _take(engine: StreamEngine, here: str, beside: str, theirs: int, mine: int) -> bool:
    """Take what a start has left in `here`, and its tables, if these are elsewhere; or neither."""
    if not engine.move(_of_start(here, theirs), _of_start(here, mine)):
        return False
    if beside == here or _move_tables(_of_start(beside, theirs), _of_start(beside, mine)):
        return True
    engine.delete_checkpoint(_of_start(here, mine))
    return False


def _move_tables(folder: str, target: str) -> bool:
    """Rename a folder of tables, of which Spark knows nothing; False if it is not on a disk."""
    tables, there = local_folder(folder), local_folder(target)
    if tables is None or there is None or not tables.is_dir():
        return False
    shutil.rmtree(there, ignore_errors=True)
    tables.rename(there)
    return True


def _delete_tables(folder: str) -> None:
    """Delete a folder of tables, of which Spark knows nothing."""
    tables = local_folder(folder)
    if tables is not None:
        shutil.rmtree(tables, ignore_errors=True)
        return
    store = ObjectStore(folder)
    store.delete([each.path for each in store.list()])
