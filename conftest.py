"""Read before any module of the tests: an assert in a helper says its values, as one in a test."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests")
