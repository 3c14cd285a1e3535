"""Rows as JSON, and what they take before there are any."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from group_coordinator.pipeline.topics import TableTopics, json_values
from group_coordinator.pipeline.topics.json_values import JsonRows


def test_a_row_is_an_object() -> None:
    rows = pa.table({"id": [1], "name": ["a"]})
    assert JsonRows().encode(rows) == [b'{"id":1,"name":"a"}']


def test_who_encodes_nothing_starts_no_duckdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Spark job's listener reads no rows, and lives until Python has ended."""

    def started() -> None:
        raise AssertionError("nothing is to be encoded")

    monkeypatch.setattr(json_values, "_duckdb", started)
    assert TableTopics(str(tmp_path)).poll() == 0
