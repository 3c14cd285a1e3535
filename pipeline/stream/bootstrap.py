"""What a stream without a streaming checkpoint begins with."""

from __future__ import annotations

from msgspec import Struct


class Bootstrap(Struct, frozen=True):
    """Where a new checkpoint begins: the version of the bootstrap's table that is its first, and
    the first version of `requests` that the bootstrap does not cover.
    """

    uri: str
    version: int
    first_version: int
