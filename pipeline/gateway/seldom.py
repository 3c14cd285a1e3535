"""Rate-limited log lines, for events that unauthenticated clients can cause."""

from __future__ import annotations

import logging

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.quoting import quoted_text

log = logging.getLogger(__name__)

# The limit of lines of a kind, and the period for which it holds, s.
_MOST = 10
_SPAN_S = 60.0


class Seldom:
    """A logger that writes at most `_MOST` lines of each kind in a minute.

    The first line of the next minute says how many lines were left out.
    """

    def __init__(self) -> None:
        # For each kind: the start of its minute, and the number of lines in it.
        self._kinds: dict[str, tuple[float, int]] = {}

    def say(self, level: int, line: str, *values: object) -> None:
        """Log a line, unless its kind is over the limit. The kind is `line` without its values.

        Values other than integers are quoted and cut, because a client may have chosen them.
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
