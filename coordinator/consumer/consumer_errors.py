"""The consumer's errors, and its reaction to each error code of each API.

Errors are raised if the user's thread must act, and are values in the results of commits. `code` is
the coordinator's error code, None if the consumer detected the error itself. `retriable`: whether
the same call may succeed later without any change.

A code that is not in an API's table of reactions ends the attempt with an exception; for Heartbeat
it counts as a failed heartbeat. Source: the response handlers of Kafka's AbstractCoordinator and
ConsumerCoordinator.
"""

from __future__ import annotations

from enum import Enum

from group_coordinator.coordinator.consumer.consumer_settings import ConsumerSettings
from group_coordinator.schemas.errors import ERROR_NAMES, ErrorCode


class ConsumerError(RuntimeError):
    """The base class of the consumer's errors, raised itself for a code without a class."""

    retriable = False

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class RetriableError(ConsumerError):
    """A temporary condition, such as a coordinator that loads or moves, or an unknown topic."""

    retriable = True


class DisconnectedError(RetriableError):
    """A request without an answer: it timed out, or the coordinator was marked unknown."""


class CoordinatorTimeoutError(ConsumerError):
    """A call that did not end within its timeout."""


class CommitFailedError(ConsumerError):
    """A commit that cannot succeed: the consumer is not a member of the group's generation."""


class RebalanceInProgressError(ConsumerError):
    """A commit during a rebalance: poll until it is over, then commit the owned partitions."""


class RetriableCommitFailedError(RetriableError):
    """A retriable failure of an asynchronous commit, which is not retried."""


class FencedInstanceIdError(ConsumerError):
    """A fenced consumer: another one joined with its group.instance.id. It must stop."""


class GroupMaxSizeReachedError(ConsumerError):
    """A join of a group that has group.max.size members."""


class InconsistentGroupProtocolError(ConsumerError):
    """A member without a common assignor with the group, or a group of another protocol type."""


class InvalidAssignmentError(ConsumerError):
    """An invalid assignment by an assignor, as a faulty assignor of the user may return it."""


class InvalidSessionTimeoutError(ConsumerError):
    """A session.timeout.ms outside the coordinator's bounds."""


class InvalidGroupIdError(ConsumerError):
    """A group.id that the coordinator does not accept, or a consumer without one."""


class GroupAuthorizationError(ConsumerError):
    """A principal that is not authorized to use the group."""


class TopicAuthorizationError(ConsumerError):
    """A principal that is not authorized to use a topic."""


class UnsupportedVersionError(ConsumerError):
    """A request version that the coordinator does not support."""


class OffsetMetadataTooLargeError(ConsumerError):
    """Metadata of a committed offset that exceeds offset.metadata.max.bytes."""


class UnknownTopicOrPartitionError(ConsumerError):
    """A topic or partition that does not exist."""


class NoOffsetForPartitionError(ConsumerError):
    """A partition without a committed offset, while auto.offset.reset is "none"."""


class OffsetOutOfRangeError(ConsumerError):
    """A position outside the log (start to end), while auto.offset.reset is "none"."""


# The codes of group coordination that are RetriableException in Kafka.
RETRIABLE_CODES: frozenset[int] = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

_FATAL: dict[int, tuple[type[ConsumerError], str]] = {
    ErrorCode.FENCED_INSTANCE_ID: (
        FencedInstanceIdError,
        "another consumer joined group {group!r} with the same group.instance.id {instance!r}",
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        GroupMaxSizeReachedError,
        "group {group!r} is full: it has group.max.size members",
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        InconsistentGroupProtocolError,
        "the members of group {group!r} support none of partition.assignment.strategy "
        "[{strategy}], or they are not consumers",
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        InvalidSessionTimeoutError,
        "session.timeout.ms {session} is outside the coordinator's group.min.session.timeout.ms "
        "and group.max.session.timeout.ms",
    ),
    ErrorCode.INVALID_GROUP_ID: (
        InvalidGroupIdError,
        "the coordinator does not accept group.id {group!r}",
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        GroupAuthorizationError,
        "the principal is not authorized to use group {group!r}",
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        TopicAuthorizationError,
        "the principal is not authorized to use a topic of the request",
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        UnsupportedVersionError,
        "the coordinator does not support this version of the request: upgrade the coordinator",
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        OffsetMetadataTooLargeError,
        "the metadata of an offset is longer than the coordinator's offset.metadata.max.bytes",
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        UnknownTopicOrPartitionError,
        "a topic or partition does not exist",
    ),
}


def required_group_id(settings: ConsumerSettings) -> str:
    """Return the group.id. Raises InvalidGroupIdError if there is none."""
    if settings.group_id is None:
        raise InvalidGroupIdError(
            "To use the group management or offset commit APIs, you must provide a valid group.id "
            "in the consumer configuration"
        )
    return settings.group_id


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or the number of an unknown code."""
    return ERROR_NAMES.get(code, str(code))


def fatal_error(
    api: str, code: int, settings: ConsumerSettings, message: str | None = None
) -> ConsumerError:
    """Return the exception for a code that is not retried; `message` is from the coordinator."""
    kind, text = _FATAL.get(code, (ConsumerError, "an error that the consumer does not expect"))
    text = text.format(
        group=settings.group_id,
        instance=settings.group_instance_id,
        session=settings.session_timeout_ms,
        strategy=", ".join(settings.strategy_names),
    )
    detail = f"; message of the coordinator: {message}" if message else ""
    return kind(f"{api} of group {settings.group_id!r}: {error_name(code)}: {text}{detail}", code)


def retriable_error(api: str, code: int) -> RetriableError:
    """Return the exception for a code that may be retried."""
    return RetriableError(f"{api}: {error_name(code)}", code)


def disconnected_error(api: str) -> DisconnectedError:
    """Return the exception for a request without an answer."""
    return DisconnectedError(
        f"{api}: no answer in time, or the coordinator became unknown meanwhile"
    )


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
