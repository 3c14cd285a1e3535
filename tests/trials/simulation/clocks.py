"""The clocks of a simulation: each machine has one, and all of them are wrong.

A wall clock has an offset, drifts, and may be set forward or back. A monotonic clock only drifts.
"""

from __future__ import annotations

# 2100-01-01 UTC. The time is in the future, because delta-rs cleans up by the real clock: it would
# drop files that are old by that clock.
BEGIN_MS = 4_102_444_800_000


class MachineClock:
    """A machine's wall clock and its monotonic clock. `drift` is a share: 0.001 gains 1 ms a s."""

    def __init__(self, offset_ms: int = 0, drift: float = 0.0) -> None:
        self.offset_ms = offset_ms
        self.drift = drift

    def wall_ms(self, true_ms: float) -> int:
        """Return the wall clock at a true time, ms since 1970."""
        return BEGIN_MS + self.offset_ms + int(true_ms * (1 + self.drift))

    def monotonic_s(self, true_ms: float) -> float:
        """Return the monotonic clock at a true time, s."""
        return true_ms * (1 + self.drift) / 1000

    def set_by(self, step_ms: int) -> None:
        """Set the wall clock forward, or back."""
        self.offset_ms += step_ms
