"""A gateway lists the groups of the root for its clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_coordinator.pipeline.tables.store import ensure_tables, table_uri
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.tables import OFFSETS_TOPIC
from tests.pipeline.gateway.listing import listed


def test_groups_that_cannot_be_read_are_to_be_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty list would say that there are none."""
    ensure_tables(str(tmp_path))
    found = listed(str(tmp_path))
    assert (found.error_code, found.groups) == (0, ())
    (commit,) = Path(table_uri(str(tmp_path), OFFSETS_TOPIC), "_delta_log").glob("*.json")
    commit.write_text("torn")
    assert listed(str(tmp_path)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "the groups cannot be listed" in caplog.text
