"""Member of a consumer group: a consumer that subscribes when it is created.

    with GroupMember(root, "my-group", ["orders"], session_timeout_ms=10_000) as member:
        for partition, records in member.poll(1_000).items():
            ...

For a topic that is only a name with a number of partitions, the program defines the rows of a
partition and the meaning of an offset. `poll_positions` then returns the assigned partitions and
their offsets, and `advance` sets the offset at which to continue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from group_coordinator.coordinator.config import ConfigError
from group_coordinator.coordinator.consumer.consumer_settings import AutoOffsetReset
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.pipeline.client.consumer import Consumer, Topics

if TYPE_CHECKING:
    from group_coordinator.pipeline.client.consumer_base import OnPartitions
    from group_coordinator.pipeline.client.request_client import RequestClient

EndOffset = Callable[[TopicPartition], int]


class GroupMember(Consumer):
    """A Consumer that is subscribed to `topics`, and joins its group at the first `poll`.

    `topics` are as in `subscribe`. In `poll_positions`, a partition without a committed offset
    begins at 0 (auto.offset.reset "earliest") or at `end_offset(partition)` ("latest", the default
    with an `end_offset`).

    Raises the errors of Consumer and of `subscribe`.
    """

    def __init__(
        self,
        root: str,
        group_id: str,
        topics: Topics,
        *,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        on_assigned: OnPartitions | None = None,
        end_offset: EndOffset | None = None,
        whole_rows: bool = False,
        client: RequestClient | None = None,
        settings: Mapping[str, Any] | None = None,
        **kafka_settings: Any,
    ) -> None:
        self._end_offset = end_offset
        if end_offset is not None:
            settings = {"auto.offset.reset": "latest", **(settings or {})}
        super().__init__(
            root,
            group_id,
            on_revoked=on_revoked,
            on_lost=on_lost,
            on_assigned=on_assigned,
            whole_rows=whole_rows,
            client=client,
            settings=settings,
            **kafka_settings,
        )
        try:
            self.subscribe(topics)
        except BaseException:
            self._release()
            raise

    def poll_positions(self, timeout_ms: int = 0) -> dict[TopicPartition, int]:
        """Take part in the group, and return the partitions to work on, with their positions.

        Use it instead of `poll` if the program reads the rows of the topics itself. Partitions that
        are paused or being revoked are left out. Timeouts, listeners and errors are the same as for
        `poll`. Also raises ConfigError if auto.offset.reset is "latest" and there is no
        `end_offset`.
        """
        return self._poll(timeout_ms, self._positions)

    def _positions(self) -> dict[TopicPartition, int]:
        self._reset_positions()
        with self._driver.step() as consumer:
            return consumer.subscription.fetchable()

    def _reset_positions(self) -> None:
        with self._driver.step() as consumer:
            waiting = consumer.subscription.awaiting_reset()
        for partition, reset in waiting.items():
            offset = 0
            if reset is AutoOffsetReset.LATEST:
                if self._end_offset is None:
                    raise ConfigError(
                        "auto.offset.reset is 'latest', and only you know where a partition ends: "
                        "give GroupMember an end_offset=, or set it to 'earliest' or 'none'"
                    )
                offset = self._end_offset(partition)
            with self._driver.step() as consumer:
                consumer.subscription.resolve_reset(partition, reset, offset)

    def advance(self, partition: TopicPartition, offset: int) -> None:
        """Set the position: all rows before the offset are processed.

        Raises ValueError if the offset is less than the position, and SubscriptionError if the
        partition is no longer assigned.
        """
        before = self.position(partition)
        if before is not None and offset < before:
            raise ValueError(
                f"{partition.topic}-{partition.partition} is at {before}: seek() goes back to "
                f"{offset}, advance() does not"
            )
        self.seek(partition, offset)
