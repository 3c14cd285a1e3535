"""A query whose source did not start in time begins anew; any other failure ends the node."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pipeline.settings import CoordinatorSettings
from pipeline.stream.serving import QueryFailed, Serving
from pipeline.stream.sink import Sink

LATE = "[STREAM_FAILED] Query x\nSparkException: Python worker failed to connect back."
OTHER = "[STREAM_FAILED] Query x\nKeyError: 'z'"


class Query:
    """A query that has ended with an error, or runs if there is none."""

    def __init__(self, error: str | None) -> None:
        self.isActive = error is None
        self._error = error

    def exception(self) -> str | None:
        return self._error


def serve(root: str, *errors: str | None) -> Serving:
    """A query that ends with these errors, one start after the other."""
    starts = iter(errors)

    def begin() -> Any:
        return Query(next(starts))

    return Serving(begin, Sink(root, CoordinatorSettings()), root, 0)


def test_a_late_source_is_started_again(root: str, caplog: pytest.LogCaptureFixture) -> None:
    serving = serve(root, LATE, LATE, None)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            serving.check()
    assert serving.query.isActive
    assert [record.getMessage() for record in caplog.records] == [
        "the source's Python process did not start in 10 s: the query begins anew"
    ] * 2


def test_a_source_that_never_starts_is_named(root: str) -> None:
    serving = serve(root, *[LATE] * 6)
    for _ in range(5):
        serving.check()
    with pytest.raises(QueryFailed, match="Python worker failed to connect back"):
        serving.check()


def test_another_failure_is_final(root: str) -> None:
    serving = serve(root, OTHER)
    with pytest.raises(QueryFailed, match="KeyError: 'z'"):
        serving.check()
