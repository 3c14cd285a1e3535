"""The two tables that a stream reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import write_deltalake

from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.stream.packed_events import PACKED_SCHEMA
from group_coordinator.pipeline.tables.request_log import RequestLog


@pytest.fixture
def log(root: str) -> RequestLog:
    return RequestLog(root)


@pytest.fixture
def bootstrap(tmp_path: Path) -> Appender:
    folder = tmp_path / "bootstrap"
    write_deltalake(str(folder), PACKED_SCHEMA.empty_table())
    return Appender(folder)
