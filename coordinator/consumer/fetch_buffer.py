"""Records that are fetched ahead of the program, and which partitions to fetch next.

Source: Fetcher, FetchBuffer, FetchCollector and CompletedFetch of Kafka's consumer. A partition has
one fetch at a time: when all its records are handed out, the next one is wanted, and is under way
while the program works on them.

Every fetch says which offset comes next. It is handed out only while that offset is the partition's
position, so records that a seek, a reset or a rebalance has made wrong are never handed out,
whenever their fetch ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from group_coordinator.coordinator.consumer.errors import OffsetOutOfRangeError
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.settings import AutoOffsetReset, ConsumerSettings
from group_coordinator.coordinator.consumer.subscription import SubscriptionState


class HasOffset(Protocol):
    """A record, as far as the buffer knows it."""

    @property
    def offset(self) -> int:
        """The record's place in its partition."""
        ...


R = TypeVar("R", bound=HasOffset)
# Which end of a partition was looked up, and its offset, or why there is none.
Found = dict[TopicPartition, tuple[AutoOffsetReset, "int | Exception"]]


class CompletedFetch(Generic[R]):
    """What a fetch of a partition from `offset` on found: records of `size` bytes, or an error.

    `offset` is that of the next record to hand out, `next_offset` that after all of them.
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

    def take(self, most: int) -> list[R]:
        """Take the next records, `most` of them at most, and go on to the offset after them."""
        some = list(self._records[self._taken : self._taken + most])
        self._taken += len(some)
        if some:
            self.offset = some[-1].offset + 1
        return some

    @property
    def is_drained(self) -> bool:
        """Whether all records were taken."""
        return self._taken == len(self._records)


class FetchBuffer(Generic[R]):
    """The completed fetches of one consumer, and what it has still to look up and to fetch.

    `collect` is for the user's thread. What is wanted is as of the last `collect`, as Kafka's
    consumer sends fetches only from `poll`. Partitions take turns, both when records are handed out
    and when they are fetched: a partition that always has records keeps no other one waiting.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        # The partition whose turn it is comes first.
        self._completed: dict[TopicPartition, CompletedFetch[R]] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._last_fetched: dict[TopicPartition, int] = {}
        self._turn = 0
        self._resets: dict[TopicPartition, AutoOffsetReset] = {}
        self._found: Found = {}
        self._lookup = 0
        self._log_ends: dict[TopicPartition, int] = {}

    # --- the user's thread ----------------------------------------------------------------------

    def collect(self, subscription: SubscriptionState) -> dict[TopicPartition, list[R]]:
        """Hand out max.poll.records records at most, and move the positions behind them.

        An error of a fetch or of a lookup is raised in its turn, and again when the next one ends
        as this one did. OFFSET_OUT_OF_RANGE is raised if auto.offset.reset is "none", and has the
        partition's position looked up otherwise.
        """
        try:
            self._reset(subscription)
            return self._collect(subscription)
        finally:
            self._positions = subscription.fetchable()
            self._resets = subscription.awaiting_reset()

    def _reset(self, subscription: SubscriptionState) -> None:
        while self._found:
            one, (reset, offset) = self._found.popitem()
            if not isinstance(offset, Exception):
                subscription.resolve_reset(one, reset, offset)
            elif one in subscription.awaiting_reset():
                raise offset

    def _collect(self, subscription: SubscriptionState) -> dict[TopicPartition, list[R]]:
        taken: dict[TopicPartition, list[R]] = {}
        room = self._settings.max_poll_records
        fetchable = subscription.fetchable()
        for one, fetch in list(self._completed.items()):
            position = subscription.assignment.get(one)
            if position is None or position.offset != fetch.offset:
                del self._completed[one]
            # A paused partition's records are kept for the time after it is resumed.
            elif one not in fetchable or not room:
                continue
            elif fetch.error is not None:
                if taken:
                    break
                del self._completed[one]
                self._fail(subscription, one, fetch.error)
            else:
                taken[one] = fetch.take(room)
                room -= len(taken[one])
                subscription.seek(one, fetch.offset)
                del self._completed[one]
                if not fetch.is_drained:
                    self._completed[one] = fetch
        return taken

    def _fail(self, subscription: SubscriptionState, one: TopicPartition, error: Exception) -> None:
        reset = self._settings.auto_offset_reset
        if not isinstance(error, OffsetOutOfRangeError) or reset is AutoOffsetReset.NONE:
            raise error
        subscription.request_reset(one, reset)

    def forget_lookups(self, partitions: Iterable[TopicPartition]) -> None:
        """Use no offset for these partitions that was looked up before now."""
        self._lookup += 1
        for one in partitions:
            self._found.pop(one, None)

    def log_end(self, partition: TopicPartition) -> int | None:
        """The partition's log end as of its last fetch, None if there was none."""
        return self._log_ends.get(partition)

    # --- whoever fetches ------------------------------------------------------------------------

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The partitions whose records may be handed out, with their positions."""
        return self._positions

    def wanted(self) -> dict[TopicPartition, int]:
        """The partitions to fetch with the offsets to fetch from, the one that waits longest first.

        None while fetch.max.bytes are waiting to be handed out. Records of paused partitions do not
        count: nobody could make room by handing them out.
        """
        ahead = sum(fetch.size for one, fetch in self._completed.items() if one in self._positions)
        if ahead and ahead >= self._settings.fetch_max_bytes:
            return {}
        idle = [one for one in self._positions if one not in self._completed]
        idle.sort(key=lambda one: self._last_fetched.get(one, -1))
        return {one: self._positions[one] for one in idle}

    def add(self, fetch: CompletedFetch[R]) -> None:
        """Add a fetch that is done; one that nobody wants any more is dropped."""
        if self._positions.get(fetch.partition) != fetch.offset:
            return
        self._turn += 1
        self._last_fetched[fetch.partition] = self._turn
        self._completed[fetch.partition] = fetch

    def saw_log_end(self, partition: TopicPartition, offset: int) -> None:
        """Record a partition's log end."""
        self._log_ends[partition] = offset

    def resets(self) -> tuple[int, dict[TopicPartition, AutoOffsetReset]]:
        """The partitions whose position has to be looked up, and a number for `resolve`."""
        waiting = {one: at for one, at in self._resets.items() if one not in self._found}
        return self._lookup, waiting

    def resolve(self, lookup: int, found: Found) -> None:
        """Take offsets that were looked up, unless they are to be forgotten meanwhile."""
        if lookup == self._lookup:
            self._found.update(found)
