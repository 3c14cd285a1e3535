"""The wall clock: all of `pipeline` reads it here, except what Spark passes in."""

from __future__ import annotations

import time


def clock_ms() -> int:
    """Milliseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1_000_000
