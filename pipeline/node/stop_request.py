"""The request to a coordinator's process to stop, or to stop at once."""

from __future__ import annotations

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.interrupt import SignalEvent

# Whoever asks a second time wants the node to stop at once. But `timeout` asks a process and then
# its group: the process is asked twice within a moment.
_AGAIN_AFTER_S = 1.0


class StopRequest:
    """Set by signal handlers and by threads, and waited for by the thread that runs a node."""

    def __init__(self) -> None:
        self.asked = SignalEvent()
        self.at_once = SignalEvent()
        self._asked_at = 0.0

    def ask(self) -> None:
        """Ask it to stop."""
        if not self.asked.is_set():
            self._asked_at = monotonic()
            self.asked.set()

    def ask_again(self) -> None:
        """Ask it to stop, and at once if it was asked a while ago."""
        if self.asked.is_set() and monotonic() - self._asked_at >= _AGAIN_AFTER_S:
            self.at_once.set()
        self.ask()
