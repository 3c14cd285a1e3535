"""Handling of a consumer's events: listeners, assignors and commit callbacks.

All handlers run in the user's thread, within `poll`, `commit`, `unsubscribe` and `close`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from group_coordinator.coordinator.consumer.consumer_errors import ConsumerError
from group_coordinator.coordinator.consumer.events import (
    AssignPartitions,
    CallAssignor,
    CommitDone,
    Event,
    LosePartitions,
    RevokePartitions,
)
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import OffsetAndMetadata
from group_coordinator.pipeline.client.member_driver import MemberDriver, now_ms

log = logging.getLogger(__name__)

OnPartitions = Callable[[tuple[TopicPartition, ...]], None]
OnCommit = Callable[[dict[TopicPartition, OffsetAndMetadata], ConsumerError | None], None]

# Closing calls at most one listener, so this many errors mean that it makes no progress.
_MAX_ERRORS = 3


def _nothing(_: tuple[TopicPartition, ...]) -> None:
    pass


class EventHandler:
    """Calls the user's listeners and commit callbacks for the events of one driver.

    `on_revoked` is also called for lost partitions if `on_lost` is None.
    """

    def __init__(
        self,
        driver: MemberDriver,
        on_revoked: OnPartitions | None,
        on_lost: OnPartitions | None,
        on_assigned: OnPartitions | None,
    ) -> None:
        self._driver = driver
        self._on_revoked = on_revoked or _nothing
        self._on_lost = on_lost or self._on_revoked
        self._on_assigned = on_assigned or _nothing
        self._on_commit: dict[int, OnCommit] = {}

    def handle_all(self) -> int:
        """Handle all pending events; return a mark for `MemberDriver.wait`.

        Raises ConsumerError, and the exceptions of listeners and assignors.
        """
        while True:
            event, mark = self._driver.poll()
            if event is None:
                return mark
            self._handle(event)

    def handle_until(self, deadline: int, done: Callable[[], bool]) -> None:
        """Handle events until `done()`, or the time `deadline` (ms); then raise the first error.

        Also stops after `_MAX_ERRORS` errors.
        """
        errors: list[Exception] = []
        while not done() and now_ms() < deadline and len(errors) < _MAX_ERRORS:
            try:
                mark = self.handle_all()
            # Most likely an exception of a listener. Closing continues, and raises it at its end.
            except Exception as error:
                errors.append(error)
                continue
            if not done():
                self._driver.wait(mark, deadline)
        if errors:
            raise errors[0]

    def register_callback(self, commit_id: int, on_commit: OnCommit) -> None:
        """Register `on_commit` for the end of a commit, successful or not."""
        self._on_commit[commit_id] = on_commit

    def call_completed(self) -> None:
        """Call the callbacks of completed commits, without handling other events."""
        with self._driver.step() as consumer:
            completed = consumer.completed_commits()
        for done in completed:
            self._call_commit_callback(done)

    def _handle(self, event: Event) -> None:
        if isinstance(event, CommitDone):
            self._call_commit_callback(event)
            return
        try:
            if isinstance(event, RevokePartitions):
                self._on_revoked(event.partitions)
            elif isinstance(event, LosePartitions):
                self._on_lost(event.partitions)
            elif isinstance(event, AssignPartitions):
                self._on_assigned(event.partitions)
            elif isinstance(event, CallAssignor):
                event.run()
        finally:
            with self._driver.step() as consumer:
                consumer.callback_done()

    def _call_commit_callback(self, done: CommitDone) -> None:
        if done.commit_id is None:
            if done.error is not None:
                log.warning("an automatic commit failed: %s", done.error)
            return
        on_commit = self._on_commit.pop(done.commit_id, None)
        if on_commit is not None:
            on_commit(done.offsets, done.error)
