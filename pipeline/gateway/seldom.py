"""Lines of the log that strangers can cause, of which they cannot cause any number."""

from __future__ import annotations

import logging

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.quoting import quoted_text

log = logging.getLogger(__name__)

# So many lines of a kind are written within so many seconds.
_MOST = 10
_SPAN_S = 60.0


class Seldom:
    """Writes a few lines of each kind a minute; the first one after that says what was left out."""

    def __init__(self) -> None:
        # Of each kind: when its minute began, and how many lines there were in it.
        self._kinds: dict[str, tuple[float, int]] = {}

    def say(self, level: int, line: str, *values: object) -> None:
        """Log a line, unless there were many of its kind: the `line` without its values.

        Each value that is no number is quoted and cut, because a stranger may have chosen it.
        """
        now = monotonic()
        begun, count = self._kinds.get(line, (now, 0))
        left_out = 0
        if now - begun >= _SPAN_S:
            begun, count, left_out = now, 0, max(0, count - _MOST)
        self._kinds[line] = begun, count + 1
        if count < _MOST:
            told = f" ({left_out} more of these were left out)" if left_out else ""
            safe = (each if isinstance(each, int) else quoted_text(each) for each in values)
            log.log(level, f"{line}%s", *safe, told)
