"""Offsets of a consumer: its positions, its group's committed offsets, and its topics' offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from group_coordinator.coordinator.consumer.consumer_settings import AutoOffsetReset
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import OffsetAndMetadata
from group_coordinator.pipeline.client.member_driver import now_ms
from group_coordinator.pipeline.client.member_events import OnCommit
from group_coordinator.pipeline.client.offset_lookup import OffsetAndTimestamp
from group_coordinator.pipeline.client.open_consumer import OpenConsumer


class ConsumerOffsets(OpenConsumer):
    """The methods of a consumer that seek, pause, commit and look up offsets."""

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record, None while unknown. Raises SubscriptionError."""
        with self._driver.step() as consumer:
            return consumer.subscription.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position. Raises SubscriptionError if the partition is not assigned."""
        self._check_open()
        with self._driver.step() as consumer:
            consumer.subscription.seek(partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Set the positions of these partitions, or of all assigned ones, to their log starts.

        The next `poll` looks up the offsets. Raises SubscriptionError.
        """
        self._seek_to(AutoOffsetReset.EARLIEST, partitions)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Set the positions of these partitions, or of all assigned ones, to their log ends.

        The next `poll` looks up the offsets. Raises SubscriptionError.
        """
        self._seek_to(AutoOffsetReset.LATEST, partitions)

    def _seek_to(self, end: AutoOffsetReset, partitions: Iterable[TopicPartition] | None) -> None:
        self._check_open()
        wanted = self.assignment if partitions is None else tuple(partitions)
        with self._driver.step() as consumer:
            for one in wanted:
                consumer.subscription.request_reset(one, end)
        self._records.forget_lookups(wanted)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit these offsets, or all positions, and return when they are committed.

        Retriable errors are retried for `timeout_ms` (None: default.api.timeout.ms). Raises
        CommitFailedError, RebalanceInProgressError, CoordinatorTimeoutError, FencedInstanceIdError
        and the other ConsumerErrors.
        """
        self._check_open()
        self._records.keep(offsets)
        with self._driver.step() as consumer:
            operation = consumer.commit_sync(now_ms(), _offsets(offsets), timeout_ms)
        try:
            self._driver.result(operation)
        finally:
            self._events.tell_completed()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        on_commit: OnCommit | None = None,
    ) -> None:
        """Send a commit of these offsets, or of all positions, without waiting or retries.

        A later `poll`, `commit` or `close` calls `on_commit` with the offsets and the error. On
        success the error is None.
        """
        self._check_open()
        self._records.keep(offsets)
        with self._driver.step() as consumer:
            commit_id = consumer.commit_async(now_ms(), _offsets(offsets))
        if on_commit is not None:
            self._events.call_at_commit(commit_id, on_commit)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition, None if there is none.

        Raises CoordinatorTimeoutError and the other ConsumerErrors.
        """
        self._check_open()
        with self._driver.step() as consumer:
            operation = consumer.committed(now_ms(), list(partitions), timeout_ms)
        found = self._driver.result(operation)
        return dict(found)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return each partition's log start; the partitions need not be assigned.

        Raises UnknownTopicOrPartitionError and TableReplaced. Raises CoordinatorTimeoutError if the
        topics cannot be read for `timeout_ms` (None: default.api.timeout.ms).
        """
        self._check_open()
        found = self._records.bounds(tuple(partitions), timeout_ms)
        return {one: start for one, (start, _) in found.items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return each partition's log end, after all rows that the topics have now.

        Raises as `beginning_offsets` does.
        """
        self._check_open()
        found = self._records.bounds(tuple(partitions), timeout_ms)
        return {one: end for one, (_, end) in found.items()}

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a time, None if there is none.

        Times are ms since 1970-01-01 UTC. Raises as `beginning_offsets` does.
        """
        self._check_open()
        return self._records.at_times(times, timeout_ms)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the number of records from the position to the log end as last read.

        Return None while one of them is unknown. Raises SubscriptionError. Source: KIP-695.
        """
        position = self.position(partition)
        end = self._records.log_end(partition)
        return None if position is None or end is None else max(0, end - position)

    # --- pausing --------------------------------------------------------------------------------

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Exclude these partitions from `poll` until `resume`. Raises SubscriptionError."""
        with self._driver.step() as consumer:
            consumer.subscription.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`. Raises SubscriptionError."""
        with self._driver.step() as consumer:
            consumer.subscription.resume(partitions)

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The paused partitions."""
        with self._driver.step() as consumer:
            return consumer.subscription.paused


def _offsets(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    if offsets is None:
        return None
    return {
        TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for partition, offset in offsets.items()
    }
