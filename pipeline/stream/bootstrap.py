"""The table of events with which a stream without a streaming checkpoint begins."""

from __future__ import annotations

from msgspec import Struct

from group_coordinator.coordinator.group.snapshot import VERSION


class Bootstrap(Struct, frozen=True):
    """Where a new streaming checkpoint begins.

    `version` is the first version that it reads of the bootstrap's table, which is at `uri`.
    `first_version` is the first version of `requests` that the bootstrap does not cover.
    `state_version` is the version in which the checkpoint keeps the states of groups.
    `requests_table` is the number of the table of requests, None where an earlier release wrote
    none.
    """

    uri: str
    version: int
    first_version: int
    state_version: int = VERSION
    requests_table: int | None = None
