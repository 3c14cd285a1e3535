"""The buffer of records that are fetched ahead of the program, and the next partitions to fetch.

A partition has at most one fetch, in flight or buffered. The next fetch runs while the program
processes the records of the last one. Records are handed out only if the fetch's next offset is the
partition's position, so a fetch that a seek, a reset or a rebalance has made stale is dropped,
whenever it completes. Source: Fetcher, FetchBuffer, FetchCollector and CompletedFetch of Kafka's
consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from group_coordinator.coordinator.consumer.consumer_errors import OffsetOutOfRangeError
from group_coordinator.coordinator.consumer.consumer_settings import (
    AutoOffsetReset,
    ConsumerSettings,
)
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import SubscriptionState


class HasOffset(Protocol):
    """A record with an offset: the buffer reads nothing else of it."""

    @property
    def offset(self) -> int:
        """The record's offset in its partition."""
        ...


R = TypeVar("R", bound=HasOffset)
# Results of offset lookups: the end of the partition that was looked up, and its offset or error.
LookupResults = dict[TopicPartition, tuple[AutoOffsetReset, "int | Exception"]]


class CompletedFetch(Generic[R]):
    """The result of a fetch from `offset` of a partition: records of `size` bytes, or an error.

    `offset` advances to the next record as records are taken. `next_offset` is the offset after the
    last record.
    """

    __slots__ = ("_records", "_taken", "error", "next_offset", "offset", "partition", "size")

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        records: Sequence[R] = (),
        size: int = 0,
        error: Exception | None = None,
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.next_offset = records[-1].offset + 1 if records else offset
        self.size = size
        self.error = error
        self._records = records
        self._taken = 0

    def take(self, limit: int) -> list[R]:
        """Remove and return the next records, at most `limit`; advance `offset` past them."""
        taken = list(self._records[self._taken : self._taken + limit])
        self._taken += len(taken)
        if taken:
            self.offset = taken[-1].offset + 1
        return taken

    @property
    def is_drained(self) -> bool:
        """Whether all records were taken."""
        return self._taken == len(self._records)


class FetchBuffer(Generic[R]):
    """The completed fetches of one consumer, and its pending lookups and fetches.

    The user's thread calls `collect`, `discard_lookups` and `log_end`, the fetcher's thread the
    other methods, which use the subscription as of the last `collect`: Kafka's consumer, too, sends
    fetches only from `poll`. `positions` has the position of each partition that may be fetched.
    Partitions take turns when records are fetched and handed out, so that none starves.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        # In the order of turns: the first partition is handed out next.
        self._completed: dict[TopicPartition, CompletedFetch[R]] = {}
        self.positions: dict[TopicPartition, int] = {}
        self._last_fetched: dict[TopicPartition, int] = {}
        self._turn = 0
        self._resets: dict[TopicPartition, AutoOffsetReset] = {}
        self._lookup_results: LookupResults = {}
        self._lookup_epoch = 0
        self._log_ends: dict[TopicPartition, int] = {}

    # --- the user's thread ----------------------------------------------------------------------

    def collect(self, subscription: SubscriptionState) -> dict[TopicPartition, list[R]]:
        """Return at most max.poll.records records, and advance the positions past them.

        Raises the error of a fetch when its partition has its turn, and the error of a lookup;
        either is then repeated. OffsetOutOfRangeError is raised only if auto.offset.reset is
        "none"; otherwise it resets the position.
        """
        try:
            self._reset(subscription)
            return self._collect(subscription)
        finally:
            self.positions = subscription.fetchable()
            self._resets = subscription.awaiting_reset()

    def _reset(self, subscription: SubscriptionState) -> None:
        while self._lookup_results:
            partition, (reset, offset) = self._lookup_results.popitem()
            if not isinstance(offset, Exception):
                subscription.resolve_reset(partition, reset, offset)
            elif partition in subscription.awaiting_reset():
                raise offset

    def _collect(self, subscription: SubscriptionState) -> dict[TopicPartition, list[R]]:
        taken: dict[TopicPartition, list[R]] = {}
        remaining = self._settings.max_poll_records
        fetchable = subscription.fetchable()
        for partition, fetch in list(self._completed.items()):
            position = subscription.assignment.get(partition)
            if position is None or position.offset != fetch.offset:
                del self._completed[partition]
            # The records of a paused partition are kept until it is resumed.
            elif partition not in fetchable or not remaining:
                continue
            elif fetch.error is not None:
                if taken:
                    break
                del self._completed[partition]
                self._raise_or_reset(subscription, partition, fetch.error)
            else:
                taken[partition] = fetch.take(remaining)
                remaining -= len(taken[partition])
                subscription.seek(partition, fetch.offset)
                del self._completed[partition]
                if not fetch.is_drained:
                    self._completed[partition] = fetch
        return taken

    def _raise_or_reset(
        self, subscription: SubscriptionState, partition: TopicPartition, error: Exception
    ) -> None:
        reset = self._settings.auto_offset_reset
        if not isinstance(error, OffsetOutOfRangeError) or reset is AutoOffsetReset.NONE:
            raise error
        subscription.request_reset(partition, reset)

    def discard_lookups(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard the results of lookups for these partitions, and of all lookups in flight.

        So a later `collect` uses only offsets that are looked up after this call.
        """
        self._lookup_epoch += 1
        for partition in partitions:
            self._lookup_results.pop(partition, None)

    def log_end(self, partition: TopicPartition) -> int | None:
        """Return the partition's log end as of its last fetch; None before the first fetch."""
        return self._log_ends.get(partition)

    # --- the fetcher ----------------------------------------------------------------------------

    def partitions_to_fetch(self) -> dict[TopicPartition, int]:
        """Return the partitions to fetch with their offsets, the least recently fetched first.

        Empty while fetch.max.bytes are buffered. Records of paused partitions do not count, because
        `collect` cannot hand them out to free their memory.
        """
        buffered_bytes = sum(
            fetch.size
            for partition, fetch in self._completed.items()
            if partition in self.positions
        )
        if buffered_bytes and buffered_bytes >= self._settings.fetch_max_bytes:
            return {}
        idle = [partition for partition in self.positions if partition not in self._completed]
        idle.sort(key=lambda partition: self._last_fetched.get(partition, -1))
        return {partition: self.positions[partition] for partition in idle}

    def add(self, fetch: CompletedFetch[R]) -> None:
        """Add a completed fetch; drop it if its offset is no longer the partition's position."""
        if self.positions.get(fetch.partition) != fetch.offset:
            return
        self._turn += 1
        self._last_fetched[fetch.partition] = self._turn
        self._completed[fetch.partition] = fetch

    def update_log_end(self, partition: TopicPartition, offset: int) -> None:
        """Record a partition's log end."""
        self._log_ends[partition] = offset

    def pending_resets(self) -> tuple[int, dict[TopicPartition, AutoOffsetReset]]:
        """Return the end of the log to look up for each partition with a pending reset.

        Before it an epoch, which the caller passes to `complete_lookups`.
        """
        pending = {
            partition: at
            for partition, at in self._resets.items()
            if partition not in self._lookup_results
        }
        return self._lookup_epoch, pending

    def complete_lookups(self, epoch: int, results: LookupResults) -> None:
        """Add results of lookups, unless `discard_lookups` was called since `pending_resets`."""
        if epoch == self._lookup_epoch:
            self._lookup_results.update(results)
