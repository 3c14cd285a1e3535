"""The decision of a node's start to resume a streaming checkpoint or to begin a new one.

A start takes the folder that the start before has left (`pipeline.node.start_folder`). It resumes
from the streaming checkpoint in that folder if all of these conditions hold:

* The checkpoint has a planned batch. Without one, its first batch may begin with any bootstrap.
* The bootstrap in the folder records the start of the first batch, and the last batch was planned
  with this project's source.
* No table has a later batch of its query. A later batch means that the checkpoint is an older copy,
  for example from a restored disk. Its next batches would count as already written, and their
  requests would stay unanswered. The last planned batch may be in the tables, and is then run
  again. It may also be missing, because a batch without rows is in no table.
* The checkpoint has read the present table of requests, not one that was replaced since.
* The bootstrap has all of its versions that the checkpoint has read.
* No later start of the node has begun another stream.
* The version of its group states is the version of this release
  (`coordinator.group.group_snapshot`).
* The bootstrap has at least one present claim of the node. If all claims are later, other nodes
  have decided for all of its partitions since.

The last planned batch then gives the rest: its pinned settings (`pipeline.stream.pinned_settings`)
and the ticks that were kept after it (`pipeline.stream.kept_looks`). Otherwise the streaming
checkpoint counts as lost, and the groups are loaded from the tables (`pipeline.node.bootstrap`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.coordinator.group.group_snapshot import VERSION
from group_coordinator.pipeline.delta import is_table
from group_coordinator.pipeline.node.bootstrap import (
    number_of_requests_table,
    prepared_bootstrap,
)
from group_coordinator.pipeline.node.handover import bootstrap_end, is_newest_stream, newest_claim
from group_coordinator.pipeline.stream.offset import offset_of
from group_coordinator.pipeline.tables import last_written

if TYPE_CHECKING:
    from collections.abc import Collection

    from group_coordinator.pipeline.node.engine import StreamEngine
    from group_coordinator.pipeline.stream.bootstrap import Bootstrap
    from group_coordinator.pipeline.stream.offset import Planned

log = logging.getLogger(__name__)


class Resumption(Struct, frozen=True):
    """A streaming checkpoint to resume from.

    `planned` is its last planned batch. `bootstrap` is the one that its first batch began with, and
    `claim` the epoch of the newest claim in that bootstrap.
    """

    planned: Planned
    bootstrap: Bootstrap
    claim: int


def resumption(
    engine: StreamEngine,
    root: str,
    checkpoint: str,
    bootstrap_uri: str,
    claims: Collection[int],
    node_id: int,
) -> Resumption | None:
    """Return the checkpoint that a start resumes from; None if it must begin a new one.

    `claims` are the epochs of the claims of the node's partitions. Earlier starts of the node must
    already be fenced. The log says why a streaming checkpoint counts as lost.
    """
    planned = engine.last_planned(checkpoint)
    if planned is None or not is_table(bootstrap_uri):
        return None
    bootstrap = prepared_bootstrap(bootstrap_uri)
    written = -1 if planned.query_id is None else last_written(root, planned.query_id)
    reason = why_lost(planned, bootstrap, written)
    if reason is None and bootstrap is not None and reads_another_table(root, bootstrap):
        reason = "has read another table of requests than the present one"
    if reason is None and lacks_read(planned, bootstrap_end(bootstrap_uri)):
        reason = "has read more of its bootstrap than there is, as after a restore"
    if reason is None and not is_newest_stream(root, bootstrap_uri, node_id):
        reason = "is older than another that this node has begun since, as after a restore"
    if reason is not None or bootstrap is None:
        log.warning("the streaming checkpoint %s: the tables bring groups back", reason)
        return None
    found = Resumption(planned, bootstrap, newest_claim(bootstrap_uri))
    return None if is_void(found, claims) else found


def why_lost(planned: Planned, bootstrap: Bootstrap | None, written: int) -> str | None:
    """Return why this release cannot resume from a streaming checkpoint; None if it can.

    `written` is the last batch of its query that the tables have, -1 if they have none.
    """
    if bootstrap is None or offset_of(planned.offset) is None:
        return "is none of ours"
    if planned.query_id is None:
        return "names no query"
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
    """Whether a bootstrap that ends before version `end` lacks rows that a batch has read."""
    offset = offset_of(planned.offset)
    return offset is not None and offset.bootstrap.version > end


def is_void(found: Resumption, claims: Collection[int]) -> bool:
    """Whether other nodes have decided for all partitions since: all claims are later."""
    return not claims or found.claim < min(claims)
