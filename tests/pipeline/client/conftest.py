"""Members that wait for their answers only, and not for a clock."""

from __future__ import annotations

from functools import partial

import pytest

from group_coordinator.pipeline.client import ProducerSettings, RequestClient, member_hub


@pytest.fixture(autouse=True)
def prompt_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have members write each request at once, and look at the catalogue often.

    A member asks four times, each time after an answer, before it has its partitions: with the
    default `linger.ms` a test waits for 0.2 s at each join.
    """
    client = partial(RequestClient, settings=ProducerSettings(linger_ms=0))
    monkeypatch.setattr(member_hub, "RequestClient", client)
    monkeypatch.setattr(member_hub, "CATALOGUE_INTERVAL_S", 0.05)
