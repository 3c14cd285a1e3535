"""Reading ahead: what a claim needs of `requests` and `responses`, read before the claim.

The next owner of a partition reads ahead while the former one still decides, and reads after its
claim only what was written since. To find which requests wait, all that are kept are compared with
all answers, which takes long where much is kept: the groups of a partition that moves must not wait
for that. What was read ahead decides nothing: whether a request waits is told by what the tables
say after the claim.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta.failures import STORE_FAILS
from group_coordinator.pipeline.delta.store_files import AT_ONCE
from group_coordinator.pipeline.delta.table import refresh
from group_coordinator.pipeline.node.answers import Answers
from group_coordinator.pipeline.node.remembered import AnsweredLately
from group_coordinator.pipeline.node.scan_engine import open_engine
from group_coordinator.pipeline.node.waiting_requests import WaitingRequests
from group_coordinator.pipeline.tables.store import open_table
from group_coordinator.schemas.tables import REQUESTS, RESPONSES

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from group_coordinator.pipeline.settings import CoordinatorSettings
    from group_coordinator.schemas.tables import Table

log = logging.getLogger(__name__)

# While a partition is on its way, what was written meanwhile is read this often, s, so that little
# is left to be read after the claim. The pause is at least a tenth of the time that the partition
# has been on its way.
_AGAIN_S, _AGAIN_SHARE = 1.0, 0.1
# The same once its owner lets go of a partition: a read may then keep the node from its claim.
_LET_GO_AGAIN_S = 5.0
# How many files are asked for at once of a store while a query runs. With fewer it may take longer
# than who lets go of a partition waits (`pipeline.ownership.prepared`).
AT_ONCE_BESIDE_BATCHES = 8
# How long what was read is kept for further partitions, s: shares become even in rounds.
_KEPT_S = 10.0


class ReadAhead:
    """What was read so far; `close` frees its memory. For one thread.

    `beside_batches` uses one core and asks a store for few files at once, so that the batches of a
    query that runs do not wait for this reading. After an error of `read_on` the object is of no
    more use.
    """

    def __init__(self, root: str, ours: CoordinatorSettings, beside_batches: bool = False) -> None:
        self.root = root
        # How far `requests` was read; -1: not at all.
        self.version = -1
        self._requests = _OpenTable(root, REQUESTS)
        self._responses = _OpenTable(root, RESPONSES)
        opened = contextlib.ExitStack()
        self.engine = opened.enter_context(open_engine(beside_batches))
        # Also where a node that holds it is dropped without a word, as a simulated one may be.
        self.close = weakref.finalize(self, opened.close)
        at_once = AT_ONCE_BESIDE_BATCHES if beside_batches else AT_ONCE
        self._answers = Answers(self.engine, ours.request_dedup_window_ms, at_once)
        self.lately = AnsweredLately(self.engine, ours)
        self.waiting = WaitingRequests(self.engine, root, ours.max_request_size, at_once)

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_on(self) -> None:
        """Read what was written since the last call. Raises Failure with what DuckDB says."""
        self.version = self.waiting.read_on(self._requests.newest, self._read_answers)

    def _read_answers(self) -> None:
        self._answers.read_on(self._responses.newest(), clock_ms())


class _OpenTable:
    """A table that stays open, since opening a table of many files takes long."""

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


class AheadOfClaims:
    """A node's reading ahead for its next claims, as long as there may be any. For one thread.

    `ours` are the node's settings. The node's query runs meanwhile.
    """

    def __init__(self, root: str, ours: CoordinatorSettings) -> None:
        self._root = root
        self._ours = ours
        self._ahead: ReadAhead | None = None
        # When partitions were first seen to be on their way, and when to read next; None: none are.
        self._began_at: float | None = None
        self._read_at = 0.0

    def read(self, is_let_go: bool = False) -> None:
        """Partitions are on their way: read what their claims will need.

        `is_let_go`: one of them is about to be claimed, so that reading now may delay the claim.
        What is not read now is read after the claim.
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
            log.warning("nothing was read ahead of a claim: %s", error)
        else:
            if is_first:
                log.info("read ahead of a claim in %.1f s", monotonic() - now)
        self._read_at = monotonic() + max(_AGAIN_S, _AGAIN_SHARE * (now - self._began_at))

    def present(self) -> ReadAhead:
        """What was read ahead, if anything."""
        if self._ahead is None:
            self._ahead = ReadAhead(self._root, self._ours, beside_batches=True)
        return self._ahead

    def read_on(self) -> None:
        """Read what was written since the last call; after a failure the next one reads all."""
        try:
            self.present().read_on()
        except BaseException:
            self.close()
            raise

    def rest(self) -> None:
        """Nothing is on its way: free the memory after a while."""
        self._began_at = None
        if self._ahead is not None and monotonic() > self._read_at + _KEPT_S:
            self.close()

    def close(self) -> None:
        """Free the memory."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
