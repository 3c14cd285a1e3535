"""The table of events with which a stream without a streaming checkpoint begins."""

from __future__ import annotations

from msgspec import Struct


class Bootstrap(Struct, frozen=True):
    """Where a new streaming checkpoint begins.

    `version` is the first version that it reads of the bootstrap's table, which is at `uri`.
    `first_version` is the first version of `requests` that the bootstrap does not cover.
    """

    uri: str
    version: int
    first_version: int
