"""The table of events with which a stream without a streaming checkpoint begins."""

from __future__ import annotations

from msgspec import Struct

from group_coordinator.coordinator.group.group_snapshot import VERSION


class Bootstrap(Struct, frozen=True):
    """The position at which a new streaming checkpoint begins.

    `uri` is the bootstrap's table, and `version` is its first version that the stream reads.
    `first_version` is the first version of `requests` that the bootstrap does not cover.
    `state_version` is the format version of the groups' states in the checkpoint. `requests_table`
    is the number of the table of requests, None if an earlier release wrote the bootstrap without
    it.
    """

    uri: str
    version: int
    first_version: int
    state_version: int = VERSION
    requests_table: int | None = None
