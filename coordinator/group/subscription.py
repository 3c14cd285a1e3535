"""The topics of a subscription, all that the coordinator reads of the consumer protocol.

As in Kafka's coordinator, version 0 is parsed, which every later version begins with, whatever
version the blob claims.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(subscriptions: Iterable[bytes]) -> list[str] | None:
    """The union of the topics of ConsumerProtocolSubscription blobs, sorted; None if one is bad."""
    topics: set[str] = set()
    try:
        for blob in subscriptions:
            topics.update(_topics(blob))
    except (struct.error, ValueError):
        return None
    return sorted(topics)


def _topics(blob: bytes) -> list[str]:
    (count,) = _INT32.unpack_from(blob, 2)
    if count < 0:
        raise ValueError("no list of topics")
    position = 6
    topics = []
    for _ in range(count):
        (length,) = _INT16.unpack_from(blob, position)
        end = position + 2 + length
        if length < 0 or end > len(blob):
            raise ValueError("a topic name runs past the end")
        topics.append(blob[position + 2 : end].decode(errors="replace"))
        position = end
    # The user data is not read, but a blob that ends before it is not a subscription.
    (length,) = _INT32.unpack_from(blob, position)
    if position + 4 + length > len(blob):
        raise ValueError("the user data run past the end")
    return topics
