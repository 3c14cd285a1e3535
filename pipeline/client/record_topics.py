"""Topics of a producer: their tables, partitions, configs and ACLs.

When records are committed, this metadata is at most one second old. ACLs only prevent mistakes: a
program that may write files under the root can bypass them.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from msgspec import Struct

from group_coordinator.coordinator.authorization import TOPIC, WRITE, Authorizer, super_users_of
from group_coordinator.coordinator.consumer.consumer_errors import (
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from group_coordinator.pipeline.client.sent_records import NotProducible
from group_coordinator.pipeline.clock import Freshness
from group_coordinator.pipeline.tables import PRINCIPAL, AclWatcher
from group_coordinator.pipeline.topics import Definitions
from group_coordinator.schemas.acls import ANONYMOUS
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.rows import TopicTable

if TYPE_CHECKING:
    from group_coordinator.coordinator.producer.record_producer_settings import (
        RecordProducerSettings,
    )

# The maximum age of a topic's metadata when records are committed, s.
MAX_METADATA_AGE_S = 1.0
# A program has no client address, so only ACLs for any host apply to it.
_HOST = ""


class ProducibleTopic(Struct, frozen=True):
    """A topic that has its own table, and its number of partitions."""

    table: TopicTable
    partitions: int


class RecordTopics:
    """The topics of a root that one principal may write to; thread-safe."""

    def __init__(self, root: str, settings: RecordProducerSettings) -> None:
        self._root = root
        self._principal = settings.principal or os.environ.get(PRINCIPAL) or ANONYMOUS
        self._super_users = super_users_of(settings.super_users)
        self._allow_without_acls = settings.allow_everyone_if_no_acl_found
        self._lock = threading.Lock()
        self._definitions = Definitions(root)
        self._watcher = AclWatcher(root)
        self._authorizer: Authorizer | None = None
        self._freshness = Freshness()

    def find(self, topic: str, max_age_s: float | None = None) -> ProducibleTopic:
        """Return a topic, from metadata of at most `max_age_s` seconds (None: MAX_METADATA_AGE_S).

        Raises UnknownTopicOrPartitionError, NotProducible and TopicAuthorizationError. Raises
        OSError, DeltaError and Failure if the tables cannot be read.
        """
        with self._lock:
            if not self._freshness.is_within(
                MAX_METADATA_AGE_S if max_age_s is None else max_age_s
            ):
                self._refresh()
            table = self._definitions.topics.get(topic)
            count = self._definitions.catalogue.get(topic)
            authorizer = self._authorizer
        # Like a broker, do not reveal to an unauthorized principal whether the topic exists.
        if authorizer is not None and not authorizer.allows(
            self._principal, _HOST, WRITE, TOPIC, topic
        ):
            raise TopicAuthorizationError(
                f"{self._principal} is not authorized to write to topic {topic!r}: "
                f"it needs {WRITE}",
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
        if count is None:
            raise UnknownTopicOrPartitionError(
                f"there is no topic {topic!r} under {self._root}: create it with "
                f"`group-coordinator topics create {topic}`",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        if table is None:
            raise NotProducible(f"topic {topic!r} has no table, so it cannot store records")
        if table.config is None:
            raise NotProducible(
                f"topic {topic!r} is a user's table: write to the table {table.table} itself"
            )
        return ProducibleTopic(table, count)

    def _refresh(self) -> None:
        now = Freshness.now()
        self._definitions.poll()
        before = self._watcher.acls
        acls = self._watcher.poll()
        if acls is not None and (acls is not before or self._authorizer is None):
            self._authorizer = Authorizer(acls, self._super_users, self._allow_without_acls)
        self._freshness.renew(now)


def unknown_partition_error(topic: str, partition: int, count: int) -> UnknownTopicOrPartitionError:
    """Return the error of a partition that a topic with `count` partitions does not have."""
    return UnknownTopicOrPartitionError(
        f"topic {topic!r} has no partition {partition}, only 0 to {count - 1}",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
