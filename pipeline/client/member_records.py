"""Records of a member: its fetcher, the offsets that the last `poll` returned, and lookups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from group_coordinator.coordinator.consumer.consumer_settings import ConsumerSettings
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.pipeline.client.consumer_record import ConsumerRecord, consumer_records
from group_coordinator.pipeline.client.fetcher import Fetcher
from group_coordinator.pipeline.client.member_driver import MemberDriver
from group_coordinator.pipeline.client.offset_lookup import OffsetAndTimestamp, at_time, bounds_of

if TYPE_CHECKING:
    from group_coordinator.pipeline.topics import TableTopics

T = TypeVar("T")


class MemberRecords:
    """The reader of one member's topics.

    Its thread starts at the first use. A member that only calls `poll_positions` has no such
    thread, because its program reads the rows itself.
    """

    def __init__(
        self, root: str, settings: ConsumerSettings, whole_rows: bool, driver: MemberDriver
    ) -> None:
        self._root, self._settings, self._whole_rows = root, settings, whole_rows
        self._driver = driver
        self._fetcher: Fetcher | None = None
        # The first offset that the last `poll` returned of each partition, and the one after the
        # last.
        self._handed_out: dict[TopicPartition, tuple[int, int]] = {}

    def collect(self) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the next records of the assigned partitions that have some."""
        fetcher = self._fetching()
        with self._driver.step() as consumer:
            found = fetcher.collect(consumer.subscription)
        self._handed_out = {
            one: (records[0].offset, records[-1].offset + 1) for one, records in found.items()
        }
        return {one: consumer_records(one, records) for one, records in found.items()}

    def take_back(self) -> None:
        """Seek back to the records of the last `poll`, unless the position has changed since."""
        with self._driver.step() as consumer:
            assigned = consumer.subscription.assignment
            for one, (first, after) in self._handed_out.items():
                if one in assigned and assigned[one].offset == after:
                    consumer.subscription.seek(one, first)

    def keep(self, offsets: Mapping[TopicPartition, object] | None = None) -> None:
        """Exclude these partitions, or all, from the next `take_back`."""
        if offsets is None:
            self._handed_out = {}
        for partition in offsets or ():
            self._handed_out.pop(TopicPartition(*partition), None)

    def forget_lookups(self, partitions: Collection[TopicPartition]) -> None:
        """Discard the log starts and ends of these partitions that were looked up."""
        if self._fetcher is not None:
            self._fetcher.forget_lookups(partitions)

    def bounds(
        self, wanted: tuple[TopicPartition, ...], timeout_ms: int | None
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return each partition's log start and log end. Raises as `_ask` does."""
        return self._ask(
            wanted, lambda logs: {one: bounds_of(logs, one) for one in wanted}, timeout_ms
        )

    def at_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return each partition's first record at or after a time (ms). Raises as `_ask` does."""
        return self._ask(
            tuple(times),
            lambda logs: {one: at_time(logs, one, time) for one, time in times.items()},
            timeout_ms,
        )

    def log_end(self, partition: TopicPartition) -> int | None:
        """Return the partition's log end as last read; None before the first read."""
        return None if self._fetcher is None else self._fetcher.log_end(partition)

    def close(self) -> None:
        """Stop the read-ahead thread."""
        if self._fetcher is not None:
            self._fetcher.close()

    def _fetching(self) -> Fetcher:
        if self._fetcher is None:
            self._fetcher = Fetcher(
                self._root, self._settings, self._whole_rows, self._driver.wake_user
            )
        return self._fetcher

    def _ask(
        self,
        partitions: tuple[TopicPartition, ...],
        question: Callable[[TableTopics], T],
        timeout_ms: int | None,
    ) -> T:
        """Run a lookup of topics in the fetcher's thread.

        Raises UnknownTopicOrPartitionError and TableReplaced. Raises CoordinatorTimeoutError if the
        topics cannot be read for `timeout_ms` (None: default.api.timeout.ms).
        """
        limit = self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return self._fetching().ask({one.topic for one in partitions}, question, limit)
