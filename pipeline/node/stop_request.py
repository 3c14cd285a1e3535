"""The request to a coordinator's process to stop in order, or to stop at once."""

from __future__ import annotations

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.interrupt import SignalEvent

# A second request stops the node at once. But `timeout` signals a process and then its process
# group, so the process gets two signals within a moment. A second request counts only after this
# time, s.
_AGAIN_AFTER_S = 1.0


class StopRequest:
    """A request set by signal handlers and threads; the thread that runs a node waits for it."""

    def __init__(self) -> None:
        self.asked = SignalEvent()
        self.at_once = SignalEvent()
        self._asked_at = 0.0

    def ask(self) -> None:
        """Ask the node to stop."""
        if not self.asked.is_set():
            self._asked_at = monotonic()
            self.asked.set()

    def ask_again(self) -> None:
        """Ask the node to stop; at once, if it was asked `_AGAIN_AFTER_S` ago or earlier."""
        if self.asked.is_set() and monotonic() - self._asked_at >= _AGAIN_AFTER_S:
            self.at_once.set()
        self.ask()
