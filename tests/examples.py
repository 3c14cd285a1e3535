"""The number of examples of property tests: few and always the same, or many with `-m long`.

`tests.conftest` calls `load_profile` before it imports the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# The default number of examples of a test, and the factor for `-m long`.
_COUNT, _LONG = 40, 60
_times = 1


def load_profile(long: bool) -> None:
    """Set the number of examples of tests that are imported from now on.

    With `long` they are many and random. If one fails, hypothesis prints the line that repeats it.

    No example has a deadline, whether or not `examples` is used: on a busy machine an example took
    longer than hypothesis's default of 200 ms.
    """
    global _times
    _times = _LONG if long else 1
    settings.register_profile(
        "tests",
        max_examples=_COUNT * _times,
        derandomize=not long,
        print_blob=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("tests")


def examples(count: int, **more: Any) -> Callable[[Any], Any]:
    """Let a test try `count` examples; `more` are other settings of hypothesis."""
    return settings(max_examples=count * _times, **more)


def texts(max_size: int) -> st.SearchStrategy[str]:
    """Return a strategy of strings of all characters that UTF-8 can encode.

    `st.text()` has the same strings, but spends 2 s on asking Python's codec about each character.
    """
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)
