"""Changes of the catalogue by clients, and Kafka's error codes for refused changes."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.request_context import TooLate
from group_coordinator.pipeline.quoting import quoted_name, quoted_text
from group_coordinator.pipeline.tables import (
    InvalidPartitions,
    InvalidTopic,
    TopicExists,
    UnknownTopic,
)
from group_coordinator.pipeline.topics import InvalidConfig
from group_coordinator.schemas.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from group_coordinator.pipeline.gateway.request_context import RequestContext

log = logging.getLogger(__name__)

_CODES: dict[type[Failure], ErrorCode] = {
    InvalidTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    InvalidConfig: ErrorCode.INVALID_CONFIG,
}


class ApiError(NamedTuple):
    """Kafka's error code for a change, 0 if it was made, and the message for users, if any."""

    code: int
    message: str | None


# The error for a client that is not authorized. It does not reveal whether the topic exists.
# Kafka's ControllerApis has a message for CreateTopics, another for DeleteTopics, and none for
# other APIs.
DENIED = ApiError(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), None)


# The error for a name that a request has more than once. As Kafka's ControllerApis, the gateway
# does not change such a topic, and answers its name once.
TWICE = ApiError(int(ErrorCode.INVALID_REQUEST), "Duplicate topic name.")

# Kafka's controller has the same limit (ReplicationControlManager, MAX_PARTITIONS_PER_BATCH),
# because each Metadata response lists all partitions.
MOST_PARTITIONS = 10_000


def twice(names: Iterable[str]) -> set[str]:
    """Return the names that a request has more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


async def change(
    call: RequestContext, name: str, make: Callable[[], object], partitions: int = 0
) -> ApiError:
    """Change a topic in another thread, and refresh the gateway's topics afterwards.

    If the topics cannot be read then, a later poll refreshes them. A change to more than
    `MOST_PARTITIONS` partitions is refused. Messages to clients have Kafka's wording, and do not
    name the tables; the log does.
    """
    if partitions > MOST_PARTITIONS:
        message = f"{partitions} partitions: a topic may be given {MOST_PARTITIONS} at most"
        return ApiError(int(ErrorCode.POLICY_VIOLATION), message)
    try:
        await call.in_thread(make)
    except TopicExists:
        return ApiError(int(ErrorCode.TOPIC_ALREADY_EXISTS), f"Topic '{name}' already exists.")
    except UnknownTopic:
        # Without a message, clients show their default text for this code.
        return ApiError(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None)
    except (InvalidTopic, InvalidPartitions, InvalidConfig) as refused:
        return ApiError(int(_CODES[type(refused)]), str(refused))
    except TooLate as late:
        return ApiError(int(ErrorCode.REQUEST_TIMED_OUT), str(late))
    except Failure as error:
        return _failed(name, ErrorCode.UNKNOWN_SERVER_ERROR, error)
    except (DeltaError, OSError) as error:
        return _failed(name, ErrorCode.KAFKA_STORAGE_ERROR, error)
    try:
        await call.services.topics.look()
    # The change is made: told otherwise, the client would make it again.
    except STORE_FAILS as error:
        named = quoted_name(name)
        log.warning("topic %s was changed, and the topics cannot be read yet: %s", named, error)
    return ApiError(int(ErrorCode.NONE), None)


def _failed(name: str, code: ErrorCode, error: Exception) -> ApiError:
    log.warning("topic %s cannot be changed: %s", quoted_name(name), quoted_text(error))
    return ApiError(int(code), "the catalogue of topics cannot be changed at present")
