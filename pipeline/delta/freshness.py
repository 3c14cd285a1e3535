"""How old what was seen or written is, whatever happens to a clock."""

from __future__ import annotations

from group_coordinator.pipeline.clock import clock_ms, monotonic

# A data file that no commit names yet may be committed until it is so old, s. VACUUM takes whole
# hours, and spares younger files: of a writer that stood still for longer, as on a laptop that
# slept, the file may be gone, and a table of which a file is gone cannot be read.
COMMITTABLE_S = 1_800.0


class Freshness:
    """How long ago something was seen, by whichever of two clocks says longer.

    The monotonic clock stands still while a machine is suspended; the other one may be set.
    """

    def __init__(self) -> None:
        self._seen: tuple[float, int] | None = None

    @classmethod
    def of_now(cls) -> Freshness:
        """What is seen at this moment."""
        made = cls()
        made.renew(cls.now())
        return made

    def renew(self, at: tuple[float, int]) -> None:
        """Note that it was seen at a time that `now` had returned."""
        self._seen = at

    @staticmethod
    def now() -> tuple[float, int]:
        """The time by both clocks."""
        return monotonic(), clock_ms()

    def is_within(self, seconds: float) -> bool:
        """Whether it was seen within so many seconds."""
        if self._seen is None:
            return False
        steady, wall_ms = self._seen
        return max(monotonic() - steady, abs(clock_ms() - wall_ms) / 1000) < seconds
