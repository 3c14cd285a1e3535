"""Waiting for an effect of another thread, process or server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Far more than any condition takes, so that a slow machine fails no test, s.
LIMIT_S = 180.0


def wait_until(
    what: object,
    holds: Callable[[], T],
    limit_s: float = LIMIT_S,
    meanwhile: Callable[[], object] = lambda: None,
    every_s: float = 0.02,
) -> T:
    """Return what `holds` returns as soon as that is true.

    `what` describes the condition; if it is a function, it is called after a failure. Before each
    further look, `meanwhile` is called and `every_s` seconds pass. Raises AssertionError after
    `limit_s`.
    """
    limit = time.monotonic() + limit_s
    while not (found := holds()):
        if time.monotonic() > limit:
            raise AssertionError(f"not within {limit_s:g} s: {what() if callable(what) else what}")
        meanwhile()
        time.sleep(every_s)
    return found
