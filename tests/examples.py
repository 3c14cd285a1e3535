"""How many examples a property test tries: each time the same ones, or many others under `-m long`.

`tests.conftest` calls `load_profile` before it imports the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# How many examples a test tries that does not say it, and how many times as many `-m long` tries.
_COUNT, _LONG = 40, 60
_times = 1


def load_profile(long: bool) -> None:
    """Have the tests that are imported from now on try few examples, or many that nobody has tried.

    What a run of many finds, hypothesis prints with the line that repeats it.

    How long an example takes decides no test, whether or not `examples` is asked: on a busy machine
    one has taken longer than the 200 ms that hypothesis gives it.
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
    """Have a test try `count` examples; `more` are other settings of hypothesis."""
    return settings(max_examples=count * _times, **more)


def texts(max_size: int) -> st.SearchStrategy[str]:
    """Strings of whatever UTF-8 can hold.

    `st.text()` holds the same, and spends 2 s on asking Python's codec about every character.
    """
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)
