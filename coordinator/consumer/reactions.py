"""Tables of the consumer's reaction to each error code of each API.

A code that is not in an API's table ends the attempt with an exception. For Heartbeat it counts as
a failed heartbeat, and the next one is sent after the backoff. Source: the response handlers of
Kafka's AbstractCoordinator and ConsumerCoordinator.
"""

from __future__ import annotations

from enum import Enum

from group_coordinator.coordinator.consumer.errors import RETRIABLE_CODES
from group_coordinator.schemas.errors import ErrorCode


class Reaction(Enum):
    """A reaction to an error code."""

    RETRY = "wait for the backoff, then send it again"
    FIND_COORDINATOR = "the coordinator has moved: find it, then send it again"
    TAKE_MEMBER_ID = "join again with the member id that the answer gives (KIP-394)"
    REJOIN = "join again with the present member id"
    RESET_GENERATION = "the generation is lost, the member id may be good: join again with it"
    RESET_MEMBER = "generation and member id are lost: join as a new member"
    FATAL = "an exception, for the user to act on"


# REQUEST_TIMED_OUT is the answer to a signed request that arrives after its deadline. Requests of
# Kafka have no deadline.
_MOVED: dict[int, Reaction] = {
    ErrorCode.REQUEST_TIMED_OUT: Reaction.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
}

ON_FIND_COORDINATOR: dict[int, Reaction] = dict.fromkeys(RETRIABLE_CODES, Reaction.RETRY)

ON_JOIN: dict[int, Reaction] = {
    **_MOVED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    ErrorCode.MEMBER_ID_REQUIRED: Reaction.TAKE_MEMBER_ID,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FATAL,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: Reaction.FATAL,
    ErrorCode.INVALID_SESSION_TIMEOUT: Reaction.FATAL,
    ErrorCode.INVALID_GROUP_ID: Reaction.FATAL,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.FATAL,
    ErrorCode.GROUP_MAX_SIZE_REACHED: Reaction.FATAL,
    ErrorCode.UNSUPPORTED_VERSION: Reaction.FATAL,
}

ON_SYNC: dict[int, Reaction] = {
    **_MOVED,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Reaction.RESET_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FATAL,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.FATAL,
}

# REBALANCE_IN_PROGRESS counts as a successful heartbeat.
ON_HEARTBEAT: dict[int, Reaction] = {
    **_MOVED,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Reaction.RESET_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FATAL,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.FATAL,
}

# The first error code of an OffsetCommit's partitions decides, TOPIC_AUTHORIZATION_FAILED only if
# there is no other. After RETRY and FIND_COORDINATOR a synchronous commit is retried, and an
# asynchronous one fails. After REJOIN or a reset no commit is retried.
ON_OFFSET_COMMIT: dict[int, Reaction] = {
    **_MOVED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Reaction.RESET_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FATAL,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.FATAL,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.FATAL,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: Reaction.FATAL,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: Reaction.FATAL,
}

# ON_QUERY: the top-level code of OffsetFetch and DescribeGroups. ON_FETCHED_PARTITION: the code of
# a partition in an OffsetFetch.
ON_QUERY: dict[int, Reaction] = {
    **dict.fromkeys(RETRIABLE_CODES, Reaction.RETRY),
    **_MOVED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.FATAL,
}
ON_FETCHED_PARTITION: dict[int, Reaction] = {
    ErrorCode.UNSTABLE_OFFSET_COMMIT: Reaction.RETRY,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.FATAL,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.FATAL,
}
