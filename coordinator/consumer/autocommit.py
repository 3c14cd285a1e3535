"""Automatic commits of all known positions, every auto.commit.interval.ms, from the user's poll.

A failed commit raises nothing: its error is in the CommitDone of the commit. A commit without any
position ends without a CommitDone. Source: Kafka's ConsumerCoordinator
(maybeAutoCommitOffsetsAsync).
"""

from __future__ import annotations

from group_coordinator.coordinator.consumer.calls import Operation
from group_coordinator.coordinator.consumer.commit import Commits
from group_coordinator.coordinator.consumer.settings import ConsumerSettings
from group_coordinator.coordinator.consumer.subscription import SubscriptionState


class AutoCommit:
    """The timer of automatic commits; it does nothing if enable.auto.commit is false."""

    def __init__(
        self,
        settings: ConsumerSettings,
        commits: Commits,
        subscription: SubscriptionState,
        now: int,
    ) -> None:
        self._settings = settings
        self._commits = commits
        self._subscription = subscription
        self._running: Operation[None] | None = None
        self._next_at = now + settings.auto_commit_interval_ms

    @property
    def is_enabled(self) -> bool:
        """Whether positions are committed automatically."""
        return self._settings.enable_auto_commit

    @property
    def deadline(self) -> int | None:
        """The time (absolute ms) at which `poll` is due; None if automatic commits are off."""
        return self._next_at if self.is_enabled else None

    def restart(self, now: int) -> None:
        """Restart the interval at `now` (absolute ms), for example after a new assignment."""
        self._next_at = now + self._settings.auto_commit_interval_ms

    def poll(self, now: int) -> None:
        """Commit if the interval is over.

        After a retriable failure the next commit is due after retry.backoff.ms instead.
        """
        if not self.is_enabled:
            return
        running = self._running
        if running is not None and running.done:
            self._running = None
            if running.error is not None and running.error.retriable:
                self._next_at = now + self._settings.retry_backoff_ms
        if now >= self._next_at:
            self.restart(now)
            self._running = self.commit(now)

    def commit(self, now: int) -> Operation[None]:
        """Start an asynchronous commit of every known position; return its operation."""
        return self._commits.commit_async(now, self._subscription.consumed())
