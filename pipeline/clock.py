"""The clock: the one place outside of Spark that says what time it is."""

from __future__ import annotations

import time


def clock_ms() -> int:
    """Milliseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1_000_000
