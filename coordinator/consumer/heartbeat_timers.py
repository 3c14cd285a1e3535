"""The three timers of a member: the next heartbeat, the session, and the user's next poll.

Times are absolute ms. Source: Kafka's Heartbeat.
"""

from __future__ import annotations

from group_coordinator.coordinator.consumer.backoff import ExponentialBackoff
from group_coordinator.coordinator.consumer.consumer_settings import ConsumerSettings


class Heartbeat:
    """The timers of the next heartbeat, the session and the user's next poll."""

    def __init__(self, settings: ConsumerSettings, backoff: ExponentialBackoff, now: int) -> None:
        self._settings = settings
        self._backoff = backoff
        self._failures = 0
        self.reset_timeouts(now)

    def reset_timeouts(self, now: int) -> None:
        """Restart every timer, because a generation begins."""
        self.due_at = now + self._settings.heartbeat_interval_ms
        self.reset_session(now)
        self.poll(now)

    def reset_session(self, now: int) -> None:
        """Restart the session timeout, for example when the coordinator is found."""
        self.session_ends_at = now + self._settings.session_timeout_ms

    def poll(self, now: int) -> None:
        """Restart max.poll.interval.ms, because the user polled."""
        self.poll_ends_at = now + self._settings.max_poll_interval_ms

    def sent(self, now: int) -> None:
        """Schedule the next heartbeat one interval after this one, even if it is not answered."""
        self.due_at = now + self._settings.heartbeat_interval_ms

    def received(self, now: int) -> None:
        """Restart the session and the backoff, because the coordinator answered the member."""
        self._failures = 0
        self.reset_session(now)

    def failed(self, now: int) -> None:
        """Schedule the next heartbeat after the backoff, because the last one failed."""
        self.due_at = now + self._backoff(self._failures)
        self._failures += 1

    def is_due(self, now: int) -> bool:
        """Whether the next heartbeat is due."""
        return now >= self.due_at

    def session_expired(self, now: int) -> bool:
        """Whether no heartbeat was answered within session.timeout.ms."""
        return now >= self.session_ends_at

    def poll_expired(self, now: int) -> bool:
        """Whether the user did not poll for max.poll.interval.ms."""
        return now >= self.poll_ends_at

    @property
    def deadline(self) -> int:
        """The earliest of the three deadlines, absolute ms."""
        return min(self.due_at, self.session_ends_at, self.poll_ends_at)
