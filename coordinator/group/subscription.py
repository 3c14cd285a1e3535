"""Parser of the topics of a consumer-protocol subscription.

The coordinator reads nothing else of the consumer protocol. As in Kafka's coordinator, the blob is
parsed as version 0, whatever version it claims: every later version begins with version 0's fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(subscriptions: Iterable[bytes]) -> list[str] | None:
    """Return the sorted union of the topics of ConsumerProtocolSubscription blobs.

    None if a blob cannot be parsed.
    """
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
        raise ValueError("the list of topics is null")
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
        raise ValueError("the user data runs past the end")
    return topics
