"""What runs in a user's process: members of groups, and requests with their answers.

The names below are what programs import, and they stay; the modules behind them may move. `admin`
and `worker` are the command's. A client writes `requests` and reads `responses`, `topics` and the
tables that are topics; it does not know how a coordinator reads or decides, and imports neither
Spark nor pandas.
"""

from coordinator.config import ConfigError
from coordinator.consumer.errors import (
    CommitFailedError,
    ConsumerError,
    CoordinatorTimeoutError,
    DisconnectedError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    NoOffsetForPartitionError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    RetriableError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from coordinator.consumer.positions import OffsetAndMetadata
from coordinator.consumer.protocol import TopicPartition
from coordinator.consumer.settings import AutoOffsetReset, ConsumerSettings
from coordinator.consumer.state import GroupMembershipOperation
from coordinator.consumer.subscription import SubscriptionError
from pipeline.client.consumer_record import ConsumerRecord
from pipeline.client.member import GroupMember, MemberClosed, NoCatalogue
from pipeline.client.offset_lookup import OffsetAndTimestamp
from pipeline.client.producer import (
    BufferExhausted,
    DeliveryFailed,
    DeliveryTimeout,
    ProducerClosed,
    RequestProducer,
    RequestTooLarge,
    UnwritableRequest,
)
from pipeline.client.producer_settings import ProducerSettings, parse_producer
from pipeline.client.request_client import NoAnswer, RequestClient
from pipeline.client.response_reader import NoTables, ResponseReader, ResponsesLost
from pipeline.errors import Failure
from pipeline.settings import SettingsError
from pipeline.tables.columns import LaterRelease, SchemaMismatch
from pipeline.topics import CannotFollow, TableReplaced

__all__ = [
    "AutoOffsetReset",
    "BufferExhausted",
    "CannotFollow",
    "CommitFailedError",
    "ConfigError",
    "ConsumerError",
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
    "InvalidGroupIdError",
    "InvalidSessionTimeoutError",
    "LaterRelease",
    "MemberClosed",
    "NoAnswer",
    "NoCatalogue",
    "NoOffsetForPartitionError",
    "NoTables",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "ProducerClosed",
    "ProducerSettings",
    "RebalanceInProgressError",
    "RequestClient",
    "RequestProducer",
    "RequestTooLarge",
    "ResponseReader",
    "ResponsesLost",
    "RetriableCommitFailedError",
    "RetriableError",
    "SchemaMismatch",
    "SettingsError",
    "SubscriptionError",
    "TableReplaced",
    "TopicAuthorizationError",
    "TopicPartition",
    "UnknownTopicOrPartitionError",
    "UnsupportedVersionError",
    "UnwritableRequest",
    "parse_producer",
]
