"""The consumer's errors: exceptions whose messages name the setting to look at.

They are raised where the user's thread must act, and are plain values in the results of commits.
`code` is the coordinator's error code, None where the consumer found the error itself. `retriable`
says that the same call may succeed later without any change.
"""

from __future__ import annotations

from group_coordinator.coordinator.consumer.settings import ConsumerSettings
from group_coordinator.schemas.errors import ERROR_NAMES, ErrorCode


class ConsumerError(RuntimeError):
    """Base class; by itself, an error code that the consumer has no rule for."""

    retriable = False

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class RetriableError(ConsumerError):
    """A temporary condition: the coordinator loads, moves, or does not know a topic yet."""

    retriable = True


class DisconnectedError(RetriableError):
    """The coordinator did not answer in time, or was marked unknown before it did."""


class CoordinatorTimeoutError(ConsumerError):
    """A call did not end within its timeout."""


class CommitFailedError(ConsumerError):
    """The commit cannot succeed: the member no longer belongs to the group's generation."""


class RebalanceInProgressError(ConsumerError):
    """The commit must wait: poll until the rebalance is over, then commit what is still owned."""


class RetriableCommitFailedError(RetriableError):
    """An asynchronous commit failed with a retriable error; it was not retried."""


class FencedInstanceIdError(ConsumerError):
    """Another consumer with the same group.instance.id has replaced this one, which must stop."""


class GroupMaxSizeReachedError(ConsumerError):
    """The group has as many members as the coordinator allows."""


class InconsistentGroupProtocolError(ConsumerError):
    """This member offers no assignor of the group's, or the group is not one of consumers."""


class InvalidAssignmentError(ConsumerError):
    """An assignor of the user's own gave an assignment that would break the group."""


class InvalidSessionTimeoutError(ConsumerError):
    """The session timeout is outside the coordinator's bounds."""


class InvalidGroupIdError(ConsumerError):
    """The coordinator does not accept the group's name, or the consumer has no group."""


class GroupAuthorizationError(ConsumerError):
    """The consumer may not use the group."""


class TopicAuthorizationError(ConsumerError):
    """The consumer may not use a topic."""


class UnsupportedVersionError(ConsumerError):
    """The coordinator does not know the version of a request."""


class OffsetMetadataTooLargeError(ConsumerError):
    """The metadata committed with an offset is longer than the coordinator allows."""


class UnknownTopicOrPartitionError(ConsumerError):
    """A topic or partition does not exist."""


class NoOffsetForPartitionError(ConsumerError):
    """There is no committed offset, and auto.offset.reset is "none"."""


class OffsetOutOfRangeError(ConsumerError):
    """A position is before the log start or after the log end, and auto.offset.reset is "none"."""


# Kafka's subclasses of RetriableException among the codes of group coordination.
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
        "group {group!r} has as many members as the coordinator's group.max.size allows",
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        InconsistentGroupProtocolError,
        "partition.assignment.strategy [{strategy}] has nothing in common with what the other "
        "members of group {group!r} offer, or they are no consumers",
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        InvalidSessionTimeoutError,
        "session.timeout.ms {session} is outside the coordinator's group.min.session.timeout.ms "
        "and group.max.session.timeout.ms",
    ),
    ErrorCode.INVALID_GROUP_ID: (
        InvalidGroupIdError,
        "group.id {group!r} is not accepted by the coordinator",
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        GroupAuthorizationError,
        "group.id {group!r} is not to be used by this principal",
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        TopicAuthorizationError,
        "a topic is not to be used by this principal",
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        UnsupportedVersionError,
        "the coordinator is older than this consumer",
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


def group_of(settings: ConsumerSettings) -> str:
    """The group's name. Raises InvalidGroupIdError without one."""
    if settings.group_id is None:
        raise InvalidGroupIdError(
            "To use the group management or offset commit APIs, you must provide a valid group.id "
            "in the consumer configuration"
        )
    return settings.group_id


def name_of(code: int) -> str:
    """Kafka's name of a code, or the number of an unknown code."""
    return ERROR_NAMES.get(code, str(code))


def fatal(
    api: str, code: int, settings: ConsumerSettings, message: str | None = None
) -> ConsumerError:
    """The exception for a code that is not retried; `message` is the coordinator's own."""
    kind, text = _FATAL.get(code, (ConsumerError, "an answer that the consumer has no rule for"))
    text = text.format(
        group=settings.group_id,
        instance=settings.group_instance_id,
        session=settings.session_timeout_ms,
        strategy=", ".join(settings.strategy_names),
    )
    said = f"; the coordinator says: {message}" if message else ""
    return kind(f"{api} of group {settings.group_id!r}: {name_of(code)}: {text}{said}", code)


def passing(api: str, code: int) -> RetriableError:
    """The exception for a code that may be retried."""
    return RetriableError(f"{api}: {name_of(code)}", code)


def disconnected(api: str) -> DisconnectedError:
    """The exception for an answer that did not come."""
    return DisconnectedError(f"{api}: the coordinator did not answer, or was given up before")
