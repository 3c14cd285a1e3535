"""Client library: consumers, group members, producers, and requests to the coordinator.

`group_coordinator` exports the names below to programs; the modules that define them may move. A
client writes the table `requests`, and reads `responses`, `topics` and the tables of topics. It
imports neither Spark nor pandas. `worker` serves the command line only.
"""

from group_coordinator.coordinator.config import ConfigError
from group_coordinator.coordinator.consumer.assignors import (
    ConsumerPartitionAssignor,
    RebalanceProtocol,
)
from group_coordinator.coordinator.consumer.consumer_errors import (
    CommitFailedError,
    ConsumerError,
    CoordinatorTimeoutError,
    DisconnectedError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidAssignmentError,
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
from group_coordinator.coordinator.consumer.consumer_settings import (
    AutoOffsetReset,
    ConsumerSettings,
)
from group_coordinator.coordinator.consumer.member_state import (
    ConsumerGroupMetadata,
    GroupMembershipOperation,
)
from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    Subscription,
    TopicPartition,
)
from group_coordinator.coordinator.consumer.subscription_state import (
    OffsetAndMetadata,
    SubscriptionError,
)
from group_coordinator.pipeline.client.consumer import Consumer, NoCatalogue
from group_coordinator.pipeline.client.consumer_base import MemberClosed
from group_coordinator.pipeline.client.consumer_record import ConsumerRecord, OffsetAndTimestamp
from group_coordinator.pipeline.client.member import GroupMember
from group_coordinator.pipeline.client.record_columns import InvalidColumns
from group_coordinator.pipeline.client.record_producer import Producer
from group_coordinator.pipeline.client.request_client import NoAnswer, RequestClient
from group_coordinator.pipeline.client.request_producer import (
    BufferExhausted,
    DeliveryFailed,
    DeliveryTimeout,
    ProducerClosed,
    RequestProducer,
    RequestTooLarge,
    UnwritableRequest,
)
from group_coordinator.pipeline.client.request_producer_settings import (
    ProducerSettings,
    parse_producer,
)
from group_coordinator.pipeline.client.response_reader import (
    NoTables,
    ResponseReader,
    ResponsesLost,
)
from group_coordinator.pipeline.client.sent_records import (
    NotProducible,
    RecordMetadata,
    RecordRefused,
    RecordTooLarge,
    SentRecord,
    SentTable,
    WrittenRange,
)
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.settings import SettingsError
from group_coordinator.pipeline.tables import LaterRelease, SchemaMismatch
from group_coordinator.pipeline.topics import CannotFollow, TableReplaced

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
]
