"""A listener that commits the progress of a job's streaming queries as a group's offsets."""

from __future__ import annotations

import logging
import threading
import uuid
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql.streaming.listener import StreamingQueryListener

from group_coordinator.pipeline import background
from group_coordinator.pipeline.client import RequestClient
from group_coordinator.pipeline.clock import clock_ms, monotonic
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.spark.source_offsets import (
    DeltaPosition,
    SourceOffsets,
    TableOffsets,
    decode_source_offset,
    source_offsets,
)
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    RequestEvent,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from group_coordinator.pipeline.spark.topic_offsets import TopicOffsets
    from group_coordinator.schemas.messages import Response

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 30_000
# Interval at which unchanged offsets are committed again, s. In a group without members, Kafka
# counts the retention of offsets from the last commit.
REPEAT_S = 3_600.0
_LONGEST_BACK_OFF_S = 30.0
_RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
}

_Offsets = dict[tuple[str, int], int]


class _Progress(Struct, frozen=True):
    """The progress of a query: the positions of its sources, and the metadata of the commit."""

    query: str
    metadata: str
    positions: tuple[SourceOffsets | DeltaPosition, ...]


class ProgressCommits(StreamingQueryListener):
    """A listener that commits the progress of streaming queries as offsets of a memberless group.

    A job adds it by `spark.streams.addListener(ProgressCommits(root, "my-job"))`. `queries` are the
    names of the queries that belong to the group; without names, all queries of the session do.
    `request_timeout_ms` is the timeout of a request, ms.

    * A Kafka source: its offsets are committed unchanged.
    * A Delta source: if the table's rows are the records of a topic, the topic's offsets are
      committed. Otherwise the table's version is committed.
    * A topic that is read with the format `group_coordinator`: its offsets are committed unchanged.
    * A rate source: its offset, in seconds, is committed.

    Queries never wait for a commit. A background thread sends the newest progress of each query and
    skips older progress. While the coordinator or the store is unavailable, the thread retries with
    the newest progress, with a backoff of 0.5 to 30 s. Unchanged offsets are committed once an
    hour.

    If a query goes back, for example because its streaming checkpoint was lost, the smaller offset
    is committed too, and a warning is logged. `close` waits for progress that is not yet committed.
    If a job ends without it, the first progress after the job's next start commits the offsets.
    """

    def __init__(
        self,
        root: str,
        group: str,
        queries: Collection[str] = (),
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        self._guard = background.ProcessGuard("ProgressCommits")
        self._root = root
        self._group = group
        self._queries = frozenset(queries)
        self._timeout_ms = request_timeout_ms
        self._tables = TableOffsets(root)
        self._client: RequestClient | None = None
        self._changed = threading.Condition()
        self._newest: dict[str, _Progress] = {}
        self._is_sending = False
        self._is_closed = False
        # The last offset of each partition that was committed or refused for good, and the time of
        # the response (monotonic s).
        self._committed: dict[tuple[str, int], tuple[int, float]] = {}
        self._warned: set[str] = set()
        self._thread = background.start("progress-commits", self._run, self._stop)

    # --- methods that Spark calls -----------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the query has read no data yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Queue the query's progress for the next commit."""
        progress = event.progress
        query = progress.name or str(progress.id)
        if self._queries and progress.name not in self._queries:
            return
        found = [
            decode_source_offset(each.description, each.endOffset) for each in progress.sources
        ]
        positions = [position for position in found if position is not None]
        self._submit(query, f"{query}, batch {progress.batchId}", positions)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the query has read no data since its last progress."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the query's last progress is already queued."""

    # --- methods of programs ----------------------------------------------------------------------

    def submit(self, position: TopicOffsets) -> None:
        """Queue the position of a query that reads a topic for the next commit."""
        query = f"stream of {position.topic}"
        self._submit(query, query, [source_offsets(position)])

    def _submit(
        self, query: str, metadata: str, positions: Iterable[SourceOffsets | DeltaPosition]
    ) -> None:
        with self._changed:
            self._newest[query] = _Progress(query, metadata, tuple(positions))
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until the queued progress is committed.

        Return False if it was not committed within `timeout_s`.
        """
        self._guard.check()
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._newest and not self._is_sending, timeout_s
            )

    def close(self, timeout_s: float = 10.0) -> bool:
        """Wait until the queued progress is committed, then stop the thread.

        Return False if the progress was not committed within `timeout_s`.
        """
        done = self.flush(timeout_s)
        self._stop()
        self._thread.join(timeout_s)
        return done

    def _stop(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    # --- the sending thread -----------------------------------------------------------------------

    def _run(self) -> None:
        back_off_s = 0.5
        while (taken := self._take()) is not None:
            try:
                is_done = self._commit(taken)
            except STORE_FAILS as error:
                self._warn_once(
                    f"the offsets are not committed yet, and are retried: {first_line(error)}"
                )
                is_done = False
            with self._changed:
                if is_done:
                    back_off_s = 0.5
                else:
                    for progress in taken:
                        self._newest.setdefault(progress.query, progress)
                self._is_sending = False
                self._changed.notify_all()
                if not is_done:
                    self._changed.wait_for(lambda: self._is_closed, back_off_s)
                    back_off_s = min(_LONGEST_BACK_OFF_S, 2 * back_off_s)
        if self._client is not None:
            self._client.close()

    def _take(self) -> list[_Progress] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._newest or self._is_closed)
            if self._is_closed:
                return None
            taken = list(self._newest.values())
            self._newest.clear()
            self._is_sending = True
            return taken

    def _commit(self, taken: list[_Progress]) -> bool:
        """Commit the new offsets of the progress; return False if it must be retried."""
        is_done = True
        for progress in taken:
            offsets = {
                key: offset
                for key, offset in self._offsets(progress).items()
                if self._is_new(progress.query, key, offset)
            }
            if offsets:
                if self._client is None:
                    self._client = RequestClient(self._root)
                answer = self._client.ask(self._request(progress, offsets), self._timeout_ms)
                is_done &= self._record_result(answer, offsets)
        return is_done

    def _offsets(self, progress: _Progress) -> _Offsets:
        found: _Offsets = {}
        for position in progress.positions:
            if isinstance(position, DeltaPosition):
                found |= self._tables.of(position)
            else:
                found |= position.offsets
        return found

    def _is_new(self, query: str, key: tuple[str, int], offset: int) -> bool:
        before, at_s = self._committed.get(key, (None, 0.0))
        if before is not None and offset < before:
            log.warning(
                "group %s: query %s went back in %s-%d, from %d to %d: was its streaming "
                "checkpoint lost?",
                self._group,
                query,
                *key,
                before,
                offset,
            )
        return offset != before or monotonic() - at_s >= REPEAT_S

    def _request(self, progress: _Progress, offsets: Mapping[tuple[str, int], int]) -> RequestEvent:
        topics: dict[str, list[OffsetCommitPartition]] = {}
        for (topic, partition), offset in sorted(offsets.items()):
            committed = OffsetCommitPartition(
                partition, offset, committed_metadata=progress.metadata
            )
            topics.setdefault(topic, []).append(committed)
        body = OffsetCommitRequest(
            topics=tuple(OffsetCommitTopic(name, tuple(each)) for name, each in topics.items())
        )
        return RequestEvent(
            str(uuid.uuid4()),
            self._group,
            "offset_commit",
            client_id="spark",
            sent_at=clock_ms(),
            offset_commit=body,
        )

    def _record_result(self, answer: Response, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Record the offsets that were committed or refused; return False if some need a retry.

        An offset that is refused with a non-retriable error counts as committed: it is sent again
        only after `REPEAT_S`, or when it changes.
        """
        errors = dict.fromkeys(offsets, answer.error_code)
        if answer.offset_commit is not None:
            for topic in answer.offset_commit.topics:
                for each in topic.partitions:
                    errors[topic.name, each.partition_index] = each.error_code
        for (topic_name, partition), error in errors.items():
            if error in _RETRIABLE:
                self._warn_once(
                    f"the offsets are not committed yet, and are retried: {ErrorCode(error).name}"
                )
            elif error:
                self._warn_once(
                    f"{topic_name}-{partition} is not committed: {ErrorCode(error).name}"
                )
            if error not in _RETRIABLE:
                key = topic_name, partition
                self._committed[key] = offsets[key], monotonic()
        if not any(errors.values()):
            self._warned.clear()
        return not _RETRIABLE.intersection(errors.values())

    def _warn_once(self, text: str) -> None:
        """Log a warning, at most once until a commit succeeds."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning("group %s: %s", self._group, text)
