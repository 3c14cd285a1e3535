"""Reading ahead: a claim's data of `requests` and `responses`, read before the claim.

To find the waiting requests of a partition, its next owner compares all retained requests with all
answers. It does so while the former owner still decides, because the groups of a moving partition
must not wait for it, and after its claim reads only the rows written since. Whether a request waits
is always decided by the tables' state after the claim.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta import AT_ONCE, STORE_FAILS, refresh
from group_coordinator.pipeline.node.answered_requests import Answers, RecentAnswers
from group_coordinator.pipeline.node.table_scan import open_engine
from group_coordinator.pipeline.node.waiting_requests import WaitingRequests
from group_coordinator.pipeline.tables import open_table
from group_coordinator.schemas.tables import REQUESTS, RESPONSES

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from group_coordinator.pipeline.settings import CoordinatorSettings
    from group_coordinator.schemas.tables import Table

log = logging.getLogger(__name__)

# While a partition moves, new rows are read this often, s, to leave few for after the claim. The
# pause is at least a tenth of the time that the partition has been moving.
_AGAIN_S, _AGAIN_SHARE = 1.0, 0.1
# The additional pause once the partition is unloading or has no owner, s, because a read would
# delay the claim.
_LET_GO_AGAIN_S = 5.0
# How many files of a store are requested in parallel while a query runs. With fewer, the owner may
# not wait long enough (`pipeline.ownership.decision_log`).
AT_ONCE_BESIDE_BATCHES = 8
# How long the data is kept for further partitions, s: partitions move in rounds until shares are
# even.
_KEPT_S = 10.0


class ReadAhead:
    """The data of `requests` and `responses` that a claim needs, as read so far. Not thread-safe.

    `close` frees its memory. `beside_batches` uses one core and few parallel requests to a store,
    so that a running query is not delayed. After `read_on` has failed, the object must not be used.
    """

    def __init__(self, root: str, ours: CoordinatorSettings, beside_batches: bool = False) -> None:
        self.root = root
        # The version up to which `requests` was read; -1 before the first read.
        self.version = -1
        self._requests = _OpenTable(root, REQUESTS)
        self._responses = _OpenTable(root, RESPONSES)
        opened = contextlib.ExitStack()
        self.engine = opened.enter_context(open_engine(beside_batches))
        # A finalizer closes it for a node that is dropped without a call, such as a simulated one.
        self.close = weakref.finalize(self, opened.close)
        at_once = AT_ONCE_BESIDE_BATCHES if beside_batches else AT_ONCE
        self._answers = Answers(self.engine, ours.request_dedup_window_ms, at_once)
        self.lately = RecentAnswers(self.engine, ours)
        self.waiting = WaitingRequests(self.engine, root, ours.max_request_size, at_once)

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_on(self) -> None:
        """Read the rows written since the last call. Raises Failure with DuckDB's message."""
        self.version = self.waiting.read_on(
            self._requests.newest,
            lambda: self._answers.read_on(self._responses.newest(), clock_ms()),
        )


class _OpenTable:
    """A table that stays open, because opening a table of many files is slow."""

    def __init__(self, root: str, table: Table) -> None:
        self._root = root
        self._table = table
        self._handle: DeltaTable | None = None

    def newest(self) -> DeltaTable:
        if self._handle is None:
            self._handle = open_table(self._root, self._table)
        else:
            refresh(self._handle)
        return self._handle


class ClaimReadAhead:
    """A node's reading ahead for its next claims, while its query runs. Not thread-safe.

    The memory is freed some time after the last partition has moved.
    """

    def __init__(self, root: str, ours: CoordinatorSettings) -> None:
        self._root = root
        self._ours = ours
        self._ahead: ReadAhead | None = None
        # When partitions were first seen to move here, None if none do, and when to read next, s.
        self._began_at: float | None = None
        self._read_at = 0.0

    def read(self, is_let_go: bool = False) -> None:
        """Read the data for claims of partitions that move here, unless it was read recently.

        `is_let_go`: whether one of them is about to be claimed, which a read now may delay. A
        failure is logged; the claim then reads all data.
        """
        now = monotonic()
        is_first = self._began_at is None
        if self._began_at is None:
            self._began_at = now
        elif now < self._read_at + (_LET_GO_AGAIN_S if is_let_go else 0.0):
            return
        try:
            self.read_on()
        except STORE_FAILS as error:
            log.warning("reading ahead for a claim failed: %s", error)
        else:
            if is_first:
                log.info("read ahead for a claim in %.1f s", monotonic() - now)
        self._read_at = monotonic() + max(_AGAIN_S, _AGAIN_SHARE * (now - self._began_at))

    def present(self) -> ReadAhead:
        """Return the data read so far, which may be none."""
        if self._ahead is None:
            self._ahead = ReadAhead(self._root, self._ours, beside_batches=True)
        return self._ahead

    def read_on(self) -> None:
        """Read the rows written since the last call; after a failure, the next call reads all."""
        try:
            self.present().read_on()
        except BaseException:
            self.close()
            raise

    def rest(self) -> None:
        """Free the memory after a while, because no partition moves here."""
        self._began_at = None
        if self._ahead is not None and monotonic() > self._read_at + _KEPT_S:
            self.close()

    def close(self) -> None:
        """Free the memory."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
