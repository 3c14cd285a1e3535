"""How many examples a property test tries: the same ones each time, and under `-m long` many more.

`MORE` is set by `tests.conftest` before the tests are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

# How many times as many examples `-m long` tries.
LONG = 25

MORE = 1


def examples(count: int, **more: Any) -> Callable[[Any], Any]:
    """Have a test try `count` examples; `more` are other settings of hypothesis."""
    chosen = settings(
        max_examples=count * MORE, derandomize=True, database=None, deadline=None, **more
    )
    return chosen if MORE == 1 else lambda test: pytest.mark.long(chosen(test))
