"""A gateway changes the catalogue of topics for its clients."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.apis.topic_changes import change_topic
from group_coordinator.schemas.errors import ErrorCode


class Unread:
    """The topics of a gateway that cannot read them at present."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def poll(self) -> None:
        raise self.error


class Call:
    """A client's request to a gateway of these topics, without threads."""

    def __init__(self, topics: Any) -> None:
        self.services = SimpleNamespace(topics=topics)

    async def in_thread(self, work: Any) -> Any:
        return work()


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), DeltaError(), Failure("no")])
def test_a_change_that_is_made_is_told_so_if_it_cannot_be_read_yet(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Told of an error, a client would make it again, and hear that the topic exists."""
    made: list[str] = []
    call: Any = Call(Unread(error))
    told = asyncio.run(change_topic(call, "clicks", lambda: made.append("clicks")))
    assert made == ["clicks"]
    assert (told.code, told.message) == (ErrorCode.NONE, None)
    assert "topic 'clicks' was changed, and the topics cannot be read yet" in caplog.text
