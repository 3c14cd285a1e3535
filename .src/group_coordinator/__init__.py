"""What programs import: consumers, members, producers, and requests with their answers.

The names below stay. Everything else, `group_coordinator.pipeline` and what lies beside it, is
private and may move. A name is imported when it is first asked for: a worker of Spark's, which
needs none of them, does not wait for them.
"""

# ruff: noqa: F403, F405
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from group_coordinator.pipeline.client import *
    from group_coordinator.pipeline.spark import (
        ProgressCommits,
        register_data_source,
        register_views,
    )

# These need pyspark.
_OF_SPARK = ("ProgressCommits", "register_data_source", "register_views")
__all__ = [
    "Assignment",
    "AutoOffsetReset",
    "BufferExhausted",
    "CannotFollow",
    "CommitFailedError",
    "ConfigError",
    "Consumer",
    "ConsumerError",
    "ConsumerGroupMetadata",
    "ConsumerPartitionAssignor",
    "ConsumerRecord",
    "ConsumerSettings",
    "CoordinatorTimeoutError",
    "DeliveryFailed",
    "DeliveryTimeout",
    "DisconnectedError",
    "Failure",
    "FencedInstanceIdError",
    "GroupAuthorizationError",
    "GroupMaxSizeReachedError",
    "GroupMember",
    "GroupMembershipOperation",
    "InconsistentGroupProtocolError",
    "InvalidAssignmentError",
    "InvalidColumns",
    "InvalidGroupIdError",
    "InvalidSessionTimeoutError",
    "LaterRelease",
    "MemberClosed",
    "NoAnswer",
    "NoCatalogue",
    "NoOffsetForPartitionError",
    "NoTables",
    "NotProducible",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "Producer",
    "ProducerClosed",
    "ProducerSettings",
    "ProgressCommits",
    "RebalanceInProgressError",
    "RebalanceProtocol",
    "RecordMetadata",
    "RecordRefused",
    "RecordTooLarge",
    "RequestClient",
    "RequestProducer",
    "RequestTooLarge",
    "ResponseReader",
    "ResponsesLost",
    "RetriableCommitFailedError",
    "RetriableError",
    "SchemaMismatch",
    "SentRecord",
    "SentTable",
    "SettingsError",
    "Subscription",
    "SubscriptionError",
    "TableReplaced",
    "TopicAuthorizationError",
    "TopicPartition",
    "UnknownTopicOrPartitionError",
    "UnsupportedVersionError",
    "UnwritableRequest",
    "WrittenRange",
    "parse_producer",
    "register_data_source",
    "register_views",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = "spark" if name in _OF_SPARK else "client"
    return getattr(import_module(f"{__name__}.pipeline.{place}"), name)
