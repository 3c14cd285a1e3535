"""The three timers of a member: its next heartbeat, its session, the user's next poll.

Times are absolute ms. `membership` asks and sends; nothing is sent here. Source: Kafka's Heartbeat.
"""

from __future__ import annotations

from group_coordinator.coordinator.consumer.backoff import Backoff
from group_coordinator.coordinator.consumer.settings import ConsumerSettings


class Heartbeat:
    """When to send a heartbeat, when the session ends, and when the user has polled too late."""

    def __init__(self, settings: ConsumerSettings, backoff: Backoff, now: int) -> None:
        self._settings = settings
        self._backoff = backoff
        self._failures = 0
        self.reset_timeouts(now)

    def reset_timeouts(self, now: int) -> None:
        """Restart every timer, as a generation begins."""
        self.due_at = now + self._settings.heartbeat_interval_ms
        self.reset_session(now)
        self.poll(now)

    def reset_session(self, now: int) -> None:
        """Restart the session, as when the coordinator was found."""
        self.session_ends_at = now + self._settings.session_timeout_ms

    def poll(self, now: int) -> None:
        """The user polled."""
        self.poll_ends_at = now + self._settings.max_poll_interval_ms

    def sent(self, now: int) -> None:
        """A heartbeat was sent; the next is due an interval later, answered or not."""
        self.due_at = now + self._settings.heartbeat_interval_ms

    def received(self, now: int) -> None:
        """The coordinator answered and knows the member."""
        self._failures = 0
        self.reset_session(now)

    def failed(self, now: int) -> None:
        """The heartbeat failed: send the next one after the backoff."""
        self.due_at = now + self._backoff(self._failures)
        self._failures += 1

    def is_due(self, now: int) -> bool:
        """Whether to send a heartbeat."""
        return now >= self.due_at

    def session_expired(self, now: int) -> bool:
        """Whether no heartbeat was answered for session.timeout.ms."""
        return now >= self.session_ends_at

    def poll_expired(self, now: int) -> bool:
        """Whether the user did not poll for max.poll.interval.ms."""
        return now >= self.poll_ends_at

    @property
    def deadline(self) -> int:
        """The earliest of the three, absolute ms."""
        return min(self.due_at, self.session_ends_at, self.poll_ends_at)
