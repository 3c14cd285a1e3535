"""Where the table of a topic lies, and clocks that go on while somebody stands still."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta import checkpoint, log_trim, store_files
from group_coordinator.pipeline.delta import table as opening
from tests.clocks import AheadClocks


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the topic's table lies; a local folder stands for a store."""
    if request.param == "store":
        for module in (checkpoint, log_trim, store_files, opening):
            monkeypatch.setattr(module, "local_folder", lambda _uri: None)
    return str(request.param)


@pytest.fixture
def clocks() -> Iterator[AheadClocks]:
    """Clocks that go on while somebody stands still."""
    clocks = AheadClocks()
    with clock.use(clocks):
        yield clocks
