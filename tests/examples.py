"""How many examples a property test tries: the same ones each time, and under `-m long` many more.

`MORE` is set by `tests.conftest` before the tests are imported, which imports this module first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# How many times as many examples `-m long` tries.
LONG = 25

MORE = 1

# How long an example takes decides no test, whether or not `examples` is asked: on a busy machine
# one has taken longer than the 200 ms that hypothesis gives it.
settings.register_profile(
    "tests",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")


def examples(count: int, **more: Any) -> Callable[[Any], Any]:
    """Have a test try `count` examples; `more` are other settings of hypothesis."""
    chosen = settings(max_examples=count * MORE, **more)
    return chosen if MORE == 1 else lambda test: pytest.mark.long(chosen(test))


def texts(max_size: int) -> st.SearchStrategy[str]:
    """Strings of whatever UTF-8 can hold.

    `st.text()` holds the same, and spends 2 s on asking Python's codec about every character.
    """
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)
