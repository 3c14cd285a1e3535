"""The catalogue of topics in the form in which a coordinator decides by it."""

from __future__ import annotations

import msgspec
from msgspec import Struct


class Catalogue(Struct, frozen=True, array_like=True):
    """The topics that exist, and those that were deleted.

    `partitions` has each topic's number of partitions. `deleted` has, for each topic that was ever
    deleted, when that was the last time (ms); the topic may exist again.
    """

    partitions: dict[str, int]
    deleted: dict[str, int] = {}

    @property
    def deleted_at(self) -> int:
        """When a topic was deleted last, ms; 0 if none was."""
        return max(self.deleted.values(), default=0)


_decode = msgspec.json.Decoder(Catalogue | dict[str, int] | None).decode


def encode_catalogue(catalogue: Catalogue | None) -> str:
    """Write a catalogue as JSON, with its topics in the order given; None is no catalogue."""
    return msgspec.json.encode(catalogue).decode()


def decode_catalogue(text: str) -> Catalogue | None:
    """Read what `encode_catalogue` wrote. Raises msgspec.MsgspecError.

    Releases before deletions were known to a coordinator wrote the object `partitions` alone: the
    batch that runs first after an upgrade may be decided by such a text.
    """
    read = _decode(text)
    return Catalogue(read) if isinstance(read, dict) else read
