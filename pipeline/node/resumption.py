"""What a start of a node goes on from: what the start before has left, or nothing.

A start takes the folder that the one before has left (`pipeline.node.start_folder`). It goes on
from the streaming checkpoint in it if all of this holds:

* A batch was planned. Before that the first batch may begin with any bootstrap.
* The bootstrap beside it says where the first batch began, and the last batch was planned with our
  sources.
* None of the tables has a later batch of its query. If one has, the streaming checkpoint is an
  older copy, as of a disk that was restored: its next batches would count as written, and their
  requests would stay unanswered. The tables may have the last planned batch, which is run again
  then, and may lack it: a batch without rows is in no table.
* The table of requests is the one whose requests it has read, and none that was made anew.
* The bootstrap has all versions that were read of it.
* No later start of the node has begun another stream since.
* It keeps the states of its groups in the version of this release (`coordinator.group.snapshot`).
* The bootstrap holds one of the node's present claims. If all of them are later, others have
  decided for all of its partitions since.

Then its last planned batch tells the rest: the settings that are pinned for it
(`pipeline.stream.pinned_settings`) and the ticks that were kept after it
(`pipeline.stream.kept_looks`). In all other cases the streaming checkpoint counts as lost, and the
tables bring the groups back (`pipeline.node.bootstrap`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.coordinator.group.snapshot import VERSION
from group_coordinator.pipeline.delta.log import is_table
from group_coordinator.pipeline.node.bootstrap import (
    number_of_requests_table,
    prepared_bootstrap,
)
from group_coordinator.pipeline.node.handover import bootstrap_end, is_newest_stream, newest_claim
from group_coordinator.pipeline.stream.offset import offset_of
from group_coordinator.pipeline.tables.store import last_written

if TYPE_CHECKING:
    from collections.abc import Collection

    from group_coordinator.pipeline.node.engine import StreamEngine
    from group_coordinator.pipeline.stream.bootstrap import Bootstrap
    from group_coordinator.pipeline.stream.offset import Planned

log = logging.getLogger(__name__)


class Resumption(Struct, frozen=True):
    """A streaming checkpoint to go on from.

    `planned` is the last batch that it has planned, `bootstrap` what its first batch began with,
    and `claim` the epoch of the newest claim in that.
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
    """Return what a start goes on from, None if it begins afresh.

    `claims` are the epochs of the claims of the node's partitions. Earlier starts of the node must
    have been fenced off from the tables. The log says why a streaming checkpoint counts as lost.
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
    """Return why this release cannot go on from a streaming checkpoint; None if it can.

    `written` is the last batch of its query that the tables have, -1 if none.
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
    """Whether the table of requests was made anew since a stream began."""
    return bootstrap.requests_table not in (None, number_of_requests_table(root))


def lacks_read(planned: Planned, end: int) -> bool:
    """Whether a bootstrap that ends before version `end` lacks what a batch has read of it."""
    offset = offset_of(planned.offset)
    return offset is not None and offset.bootstrap.version > end


def is_void(found: Resumption, claims: Collection[int]) -> bool:
    """Whether others have decided for all partitions since: all claims are later."""
    return not claims or found.claim < min(claims)
