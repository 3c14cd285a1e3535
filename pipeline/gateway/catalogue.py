"""Changes of the catalogue that clients ask for, and Kafka's codes for what forbids them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from deltalake.exceptions import DeltaError

from pipeline.errors import Failure
from pipeline.tables.topics import InvalidPartitions, InvalidTopic, TopicExists, UnknownTopic
from pipeline.topics import InvalidConfig
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.gateway.topics import Topics

_CODES: dict[type[Failure], ErrorCode] = {
    InvalidTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    InvalidConfig: ErrorCode.INVALID_CONFIG,
    UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class Outcome(NamedTuple):
    """Kafka's code for a change, and what to tell people; null if it was made."""

    code: int
    message: str | None


# What a client is told that may not make a change: not whether the topic exists.
DENIED = Outcome(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "Authorization failed.")


async def change(topics: Topics, make: Callable[[], object]) -> Outcome:
    """Make a change in another thread; when it is made, the gateway's own view has it."""
    try:
        await asyncio.to_thread(make)
    except Failure as refused:
        code = _CODES.get(type(refused), ErrorCode.UNKNOWN_SERVER_ERROR)
        return Outcome(int(code), str(refused))
    except (DeltaError, OSError) as error:
        return Outcome(int(ErrorCode.KAFKA_STORAGE_ERROR), str(error))
    await topics.look()
    return Outcome(int(ErrorCode.NONE), None)
