"""The APIs that the gateway serves. ApiVersions sends this list to clients."""

from group_coordinator.pipeline.gateway.apis.acl_apis import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
)
from group_coordinator.pipeline.gateway.apis.committed_offsets import (
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
)
from group_coordinator.pipeline.gateway.apis.describe_configs import DESCRIBE_CONFIGS
from group_coordinator.pipeline.gateway.apis.discovery import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FIND_COORDINATOR,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from group_coordinator.pipeline.gateway.apis.fetch import FETCH, LIST_OFFSETS
from group_coordinator.pipeline.gateway.apis.group_membership import (
    CONSUMER_GROUP_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
)
from group_coordinator.pipeline.gateway.apis.groups import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
)
from group_coordinator.pipeline.gateway.apis.produce import INIT_PRODUCER_ID, PRODUCE
from group_coordinator.pipeline.gateway.apis.topic_changes import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
)

# The handlers by Kafka's API key.
APIS = {
    handler.row.key: handler
    for handler in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        SASL_HANDSHAKE,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        INIT_PRODUCER_ID,
        DESCRIBE_ACLS,
        CREATE_ACLS,
        DELETE_ACLS,
        DESCRIBE_CONFIGS,
        SASL_AUTHENTICATE,
        CREATE_PARTITIONS,
        DELETE_GROUPS,
        OFFSET_DELETE,
        DESCRIBE_CLUSTER,
        CONSUMER_GROUP_HEARTBEAT,
    )
}
