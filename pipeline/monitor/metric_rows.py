"""Definitions of the exported metrics of groups and topics.

The first three kinds have the names, labels and meanings of other exporters, so that existing
dashboards work:

* the JMX exporter, for Kafka's coordinator, with its example configuration (kafka-2_0_0.yml)
* kminion
* kafka-lag-exporter

A metric is a column of a view (schemas/VIEWS.md), with one series for each row. If there are more
than `max_groups` groups, only those with the greatest lag have series. `left_out` counts the
others. The numbers of groups and offsets always include all groups.
"""

from __future__ import annotations

from msgspec import Struct


class Gauge(Struct, frozen=True):
    """A metric. Each label, and the value, is a column of the view or another SQL expression.

    A null label becomes an empty text. A row with a null value has no series. The label `CLUSTER`
    comes from no view and is the same in all series.
    """

    name: str
    help: str
    labels: dict[str, str]
    view: str
    value: str

    @property
    def sql(self) -> str:
        """Return the query that selects the labels, in their order, and then the value."""
        columns = [column for name, column in self.labels.items() if name != CLUSTER]
        return (
            f"SELECT {', '.join([*columns, self.value])} FROM {self.view} "
            f"WHERE {self.value} IS NOT NULL"
        )


# kafka-lag-exporter's name of the label.
CLUSTER = "cluster_name"
# The views that each reading materializes, in this order, with the rows and columns that it keeps.
# After `left_out` come the views of the chosen groups only.
_CHOSEN = "SEMI JOIN chosen USING (group_id)"
HELD = (
    (
        "committed_offsets",
        'SELECT group_id, topic, "partition", committed_offset, committed_at '
        "FROM committed_offsets",
    ),
    ("groups", "FROM groups"),
    ("group_counts", "FROM group_counts"),
    ("topic_ends", "FROM topic_ends"),
    (
        "lag",
        'SELECT group_id, topic, "partition", committed_offset, lag, lag_seconds FROM lag',
    ),
    ("group_lag", "FROM group_lag"),
    (
        "chosen",
        "SELECT group_id FROM groups LEFT JOIN group_lag USING (group_id) "
        "ORDER BY lag DESC NULLS LAST, group_id LIMIT {max_groups}",
    ),
    (
        "left_out",
        "SELECT (SELECT count(*) FROM groups) - (SELECT count(*) FROM chosen) AS group_count",
    ),
    *((name, f"FROM {name} {_CHOSEN}") for name in ("groups", "group_lag", "lag", "stored_groups")),
    (
        "group_members",
        "SELECT group_id, generation, member_id, client_id, client_host, assignment "
        "FROM group_members",
    ),
    ("owned_lag", "FROM owned_lag"),
)

# --- Kafka's coordinator, as the JMX exporter names it --------------------------------------------

_MANAGER = "kafka_coordinator_group_groupmetadatamanager"
_COUNTS = "group_counts"
KAFKA = (
    Gauge(f"{_MANAGER}_numgroups", "Groups.", {}, _COUNTS, "groups"),
    Gauge(f"{_MANAGER}_numoffsets", "Committed offsets.", {}, _COUNTS, "offsets"),
    *(
        Gauge(
            f"{_MANAGER}_numgroups{state.lower()}", f"Groups that are {state}.", {}, _COUNTS, column
        )
        for state, column in (
            ("PreparingRebalance", "preparing_rebalance"),
            ("CompletingRebalance", "completing_rebalance"),
            ("Stable", "stable"),
            ("Dead", "dead"),
            ("Empty", "empty"),
        )
    ),
)

# --- kminion --------------------------------------------------------------------------------------

_K = "kminion_kafka"
_OF_GROUP = {"group_id": "group_id"}
_OF_TOPIC = {"topic_name": "topic"}
_OF_PARTITION = {**_OF_TOPIC, "partition_id": '"partition"'}
_OF_GROUP_TOPIC = {**_OF_GROUP, **_OF_TOPIC}
KMINION = (
    Gauge(
        f"{_K}_consumer_group_info",
        "1 if the group is Stable, else 0.",
        {
            **_OF_GROUP,
            "protocol": "protocol",
            "protocol_type": "protocol_type",
            "state": "state",
            "coordinator_id": "coalesce(node_id, -1)",
        },
        "group_states",
        "CAST(state = 'Stable' AS INTEGER)",
    ),
    Gauge(
        f"{_K}_consumer_group_members",
        "Members of the group.",
        _OF_GROUP,
        "groups",
        "num_members",
    ),
    Gauge(
        f"{_K}_consumer_group_empty_members",
        "Members of the group that have no partition.",
        _OF_GROUP,
        "empty_members",
        "members",
    ),
    Gauge(
        f"{_K}_consumer_group_topic_members",
        "Members of the group that have partitions of the topic.",
        _OF_GROUP_TOPIC,
        "group_topics",
        "members",
    ),
    Gauge(
        f"{_K}_consumer_group_topic_assigned_partitions",
        "Partitions of the topic that members of the group have.",
        _OF_GROUP_TOPIC,
        "group_topics",
        "partitions",
    ),
    Gauge(
        f"{_K}_consumer_group_topic_offset_sum",
        "The sum of the group's committed offsets in the topic.",
        _OF_GROUP_TOPIC,
        "group_topic_lag",
        "committed_offsets",
    ),
    Gauge(
        f"{_K}_consumer_group_topic_partition_lag",
        "Records of the partition that the group has not read.",
        {**_OF_GROUP, **_OF_PARTITION},
        "lag",
        "lag",
    ),
    Gauge(
        f"{_K}_consumer_group_topic_lag",
        "Records of the topic that the group has not read.",
        _OF_GROUP_TOPIC,
        "group_topic_lag",
        "lag",
    ),
    Gauge(
        f"{_K}_topic_info",
        "1 for each topic.",
        {
            **_OF_TOPIC,
            "partition_count": "partitions",
            "replication_factor": "1",
            "cleanup_policy": "'delete'",
        },
        "topics",
        "1",
    ),
    Gauge(
        f"{_K}_topic_partition_low_water_mark",
        "The first offset of the partition.",
        _OF_PARTITION,
        "topic_ends",
        "log_start_offset",
    ),
    Gauge(
        f"{_K}_topic_partition_high_water_mark",
        "The offset of the partition's next record.",
        _OF_PARTITION,
        "topic_ends",
        "log_end_offset",
    ),
    Gauge(
        f"{_K}_topic_low_water_mark_sum",
        "The sum of the topic's first offsets.",
        _OF_TOPIC,
        "topic_offsets",
        "log_start_offsets",
    ),
    Gauge(
        f"{_K}_topic_high_water_mark_sum",
        "The sum of the offsets of the partitions' next records.",
        _OF_TOPIC,
        "topic_offsets",
        "log_end_offsets",
    ),
)

# --- kafka-lag-exporter ---------------------------------------------------------------------------

_L = "kafka_consumergroup_group"
_TOPIC = {CLUSTER: "", "topic": "topic", "partition": '"partition"'}
_GROUP = {CLUSTER: "", "group": "group_id"}
_OWNED = {
    **_GROUP,
    "topic": "topic",
    "partition": '"partition"',
    "member_host": "client_host",
    "consumer_id": "member_id",
    "client_id": "client_id",
}
LAG_EXPORTER = (
    Gauge(
        "kafka_partition_latest_offset",
        "The offset of the partition's next record.",
        _TOPIC,
        "topic_ends",
        "log_end_offset",
    ),
    Gauge(
        "kafka_partition_earliest_offset",
        "The first offset of the partition.",
        _TOPIC,
        "topic_ends",
        "log_start_offset",
    ),
    Gauge(
        f"{_L}_offset",
        "The offset that the group has committed.",
        _OWNED,
        "owned_lag",
        "committed_offset",
    ),
    Gauge(
        f"{_L}_lag",
        "Records of the partition that the group has not read.",
        _OWNED,
        "owned_lag",
        "lag",
    ),
    Gauge(
        f"{_L}_lag_seconds",
        "For how long the first record that the group has not read has been there.",
        _OWNED,
        "owned_lag",
        "lag_seconds",
    ),
    Gauge(
        f"{_L}_max_lag",
        "The group's greatest lag of a partition.",
        _GROUP,
        "group_lag",
        "max_lag",
    ),
    Gauge(
        f"{_L}_max_lag_seconds",
        "The group's greatest lag in time of a partition.",
        _GROUP,
        "group_lag",
        "lag_seconds",
    ),
    Gauge(
        f"{_L}_sum_lag",
        "Records that the group has not read.",
        _GROUP,
        "group_lag",
        "lag",
    ),
    Gauge(
        f"{_L}_topic_sum_lag",
        "Records of the topic that the group has not read.",
        {**_GROUP, "topic": "topic"},
        "group_topic_lag",
        "lag",
    ),
)

# --- our own --------------------------------------------------------------------------------------

LEFT_OUT = "group_coordinator_groups_left_out"
OWN = (
    Gauge(
        LEFT_OUT,
        "Groups without series of their own, because there are more than metrics --max-groups.",
        {},
        "left_out",
        "group_count",
    ),
)
GAUGES = (*KAFKA, *KMINION, *LAG_EXPORTER, *OWN)
