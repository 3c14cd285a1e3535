"""What is exported of a root's groups and topics: each metric's name, labels and query.

Names, labels and meanings of the first three kinds are others', so that dashboards made for those
work here: what the JMX exporter gives of Kafka's own coordinator with its example configuration
(kafka-2_0_0.yml), what kminion exports, and what kafka-lag-exporter exports.

The queries are over tables that `HELD` makes first. Of more groups than `max_groups` those that are
furthest behind have series of their own, and only `left_out` tells of the others; numbers of groups
and offsets are always of all.
"""

from __future__ import annotations

from msgspec import Struct


class Gauge(Struct, frozen=True):
    """A metric: `sql` gives a row for each series, the labels in their order and then the value.

    But for the label `CLUSTER`, which is first where a metric has it and the same in all series.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    sql: str


# kafka-lag-exporter's name of the label.
CLUSTER = "cluster_name"
# Tables that are computed once for each scrape, in this order: a view as it is, or a query.
HELD = {
    "committed_offsets": (
        'SELECT group_id, topic, "partition", committed_offset, committed_at FROM committed_offsets'
    ),
    "scraped_groups": "SELECT * FROM groups",
    "scraped_lag": (
        'SELECT group_id, topic, "partition", committed_offset, log_start_offset, log_end_offset, '
        "lag, lag_seconds FROM lag"
    ),
    "group_lag": (
        "SELECT group_id, CAST(sum(lag) AS BIGINT) AS lag, max(lag) AS max_lag, "
        "max(lag_seconds) AS lag_seconds FROM scraped_lag GROUP BY group_id"
    ),
    "chosen": (
        "SELECT scraped_groups.*, lag, max_lag, lag_seconds FROM scraped_groups "
        "LEFT JOIN group_lag USING (group_id) "
        "ORDER BY lag DESC NULLS LAST, group_id LIMIT {max_groups}"
    ),
    "stored_groups": "SELECT * FROM stored_groups SEMI JOIN chosen USING (group_id)",
    "chosen_members": (
        "SELECT group_id, member_id, client_id, client_host, assignment FROM group_members "
        "SEMI JOIN chosen USING (group_id)"
    ),
    "owners": (
        'SELECT group_id, assigned.topic AS topic, "partition", any_value(member_id) AS member_id, '
        "any_value(client_id) AS client_id, any_value(client_host) AS client_host FROM ("
        'SELECT *, unnest(assigned.partitions) AS "partition" FROM ('
        "SELECT *, unnest(assignment) AS assigned FROM chosen_members)) GROUP BY ALL"
    ),
    "chosen_lag": (
        "SELECT scraped_lag.*, coalesce(member_id, '') AS member_id, "
        "coalesce(client_id, '') AS client_id, coalesce(client_host, '') AS client_host "
        "FROM scraped_lag SEMI JOIN chosen USING (group_id) "
        'LEFT JOIN owners USING (group_id, topic, "partition")'
    ),
    "nodes": (
        "SELECT group_id, any_value(node_id) AS node_id FROM offsets_topic "
        "SEMI JOIN chosen USING (group_id) "
        'JOIN coordinators USING ("partition") GROUP BY group_id'
    ),
    "scraped_ends": "SELECT * FROM topic_ends",
}

# --- Kafka's coordinator, as the JMX exporter names it --------------------------------------------

_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
_MANAGER = "kafka_coordinator_group_groupmetadatamanager"
KAFKA = (
    Gauge(f"{_MANAGER}_numgroups", "Groups.", (), "SELECT count(*) FROM scraped_groups"),
    Gauge(f"{_MANAGER}_numoffsets", "Committed offsets.", (), "SELECT count(*) FROM scraped_lag"),
    *(
        Gauge(
            f"{_MANAGER}_numgroups{state.lower()}",
            f"Groups that are {state}.",
            (),
            f"SELECT count(*) FROM scraped_groups WHERE state = '{state}'",
        )
        for state in _STATES
    ),
)

# --- kminion --------------------------------------------------------------------------------------

_K = "kminion_kafka"
_GROUP_TOPIC = ("group_id", "topic_name")
_PARTITION = ("topic_name", "partition_id")
_ASSIGNED = "(SELECT group_id, member_id, unnest(assignment) AS assigned FROM chosen_members)"
KMINION = (
    Gauge(
        f"{_K}_consumer_group_info",
        "1 if the group is Stable, else 0.",
        ("group_id", "protocol", "protocol_type", "state", "coordinator_id"),
        "SELECT group_id, coalesce(protocol, ''), protocol_type, state, coalesce(node_id, -1), "
        "CASE WHEN state = 'Stable' THEN 1 ELSE 0 END FROM chosen LEFT JOIN nodes USING (group_id)",
    ),
    Gauge(
        f"{_K}_consumer_group_members",
        "Members of the group.",
        ("group_id",),
        "SELECT group_id, num_members FROM chosen",
    ),
    Gauge(
        f"{_K}_consumer_group_empty_members",
        "Members of the group that have no partition.",
        ("group_id",),
        "SELECT group_id, count(*) FROM chosen_members WHERE len(assignment) = 0 GROUP BY group_id",
    ),
    Gauge(
        f"{_K}_consumer_group_topic_members",
        "Members of the group that have partitions of the topic.",
        _GROUP_TOPIC,
        f"SELECT group_id, assigned.topic, count(*) FROM {_ASSIGNED} GROUP BY ALL",
    ),
    Gauge(
        f"{_K}_consumer_group_topic_assigned_partitions",
        "Partitions of the topic that members of the group have.",
        _GROUP_TOPIC,
        "SELECT group_id, assigned.topic, CAST(sum(len(assigned.partitions)) AS BIGINT) "
        f"FROM {_ASSIGNED} GROUP BY ALL",
    ),
    Gauge(
        f"{_K}_consumer_group_topic_offset_sum",
        "The sum of the group's committed offsets in the topic.",
        _GROUP_TOPIC,
        "SELECT group_id, topic, CAST(sum(committed_offset) AS DOUBLE) FROM chosen_lag "
        "GROUP BY ALL",
    ),
    Gauge(
        f"{_K}_consumer_group_topic_partition_lag",
        "Records of the partition that the group has not read.",
        ("group_id", "topic_name", "partition_id"),
        'SELECT group_id, topic, "partition", lag FROM chosen_lag WHERE lag IS NOT NULL',
    ),
    Gauge(
        f"{_K}_consumer_group_topic_lag",
        "Records of the topic that the group has not read.",
        _GROUP_TOPIC,
        "SELECT group_id, topic, CAST(sum(lag) AS BIGINT) FROM chosen_lag "
        "WHERE lag IS NOT NULL GROUP BY ALL",
    ),
    Gauge(
        f"{_K}_topic_info",
        "1 for each topic.",
        ("topic_name", "partition_count", "replication_factor", "cleanup_policy"),
        "SELECT topic, partitions, 1, 'delete', 1 FROM topics",
    ),
    Gauge(
        f"{_K}_topic_partition_low_water_mark",
        "The first offset of the partition.",
        _PARTITION,
        'SELECT topic, "partition", log_start_offset FROM scraped_ends',
    ),
    Gauge(
        f"{_K}_topic_partition_high_water_mark",
        "The offset of the partition's next record.",
        _PARTITION,
        'SELECT topic, "partition", log_end_offset FROM scraped_ends',
    ),
    Gauge(
        f"{_K}_topic_low_water_mark_sum",
        "The sum of the topic's first offsets.",
        ("topic_name",),
        "SELECT topic, CAST(sum(log_start_offset) AS DOUBLE) FROM scraped_ends GROUP BY topic",
    ),
    Gauge(
        f"{_K}_topic_high_water_mark_sum",
        "The sum of the offsets of the partitions' next records.",
        ("topic_name",),
        "SELECT topic, CAST(sum(log_end_offset) AS DOUBLE) FROM scraped_ends GROUP BY topic",
    ),
)

# --- kafka-lag-exporter ---------------------------------------------------------------------------

_L = "kafka_consumergroup_group"
_TOPIC = (CLUSTER, "topic", "partition")
_GROUP = (CLUSTER, "group")
_OWNED = (CLUSTER, "group", "topic", "partition", "member_host", "consumer_id", "client_id")
_OWNED_SQL = 'group_id, topic, "partition", client_host, member_id, client_id'
LAG_EXPORTER = (
    Gauge(
        "kafka_partition_latest_offset",
        "The offset of the partition's next record.",
        _TOPIC,
        'SELECT topic, "partition", log_end_offset FROM scraped_ends',
    ),
    Gauge(
        "kafka_partition_earliest_offset",
        "The first offset of the partition.",
        _TOPIC,
        'SELECT topic, "partition", log_start_offset FROM scraped_ends',
    ),
    Gauge(
        f"{_L}_offset",
        "The offset that the group has committed.",
        _OWNED,
        f"SELECT {_OWNED_SQL}, committed_offset FROM chosen_lag",
    ),
    Gauge(
        f"{_L}_lag",
        "Records of the partition that the group has not read.",
        _OWNED,
        f"SELECT {_OWNED_SQL}, lag FROM chosen_lag WHERE lag IS NOT NULL",
    ),
    Gauge(
        f"{_L}_lag_seconds",
        "For how long the first record that the group has not read has been there.",
        _OWNED,
        f"SELECT {_OWNED_SQL}, lag_seconds FROM chosen_lag WHERE lag_seconds IS NOT NULL",
    ),
    Gauge(
        f"{_L}_max_lag",
        "The group's greatest lag of a partition.",
        _GROUP,
        "SELECT group_id, max_lag FROM chosen WHERE max_lag IS NOT NULL",
    ),
    Gauge(
        f"{_L}_max_lag_seconds",
        "The group's greatest lag in time of a partition.",
        _GROUP,
        "SELECT group_id, lag_seconds FROM chosen WHERE lag_seconds IS NOT NULL",
    ),
    Gauge(
        f"{_L}_sum_lag",
        "Records that the group has not read.",
        _GROUP,
        "SELECT group_id, lag FROM chosen WHERE lag IS NOT NULL",
    ),
    Gauge(
        f"{_L}_topic_sum_lag",
        "Records of the topic that the group has not read.",
        (CLUSTER, "group", "topic"),
        "SELECT group_id, topic, CAST(sum(lag) AS BIGINT) FROM chosen_lag "
        "WHERE lag IS NOT NULL GROUP BY ALL",
    ),
)

# --- our own --------------------------------------------------------------------------------------

LEFT_OUT = "group_coordinator_groups_left_out"
OWN = (
    Gauge(
        LEFT_OUT,
        "Groups without series of their own, because there are more than metrics --max-groups.",
        (),
        "SELECT (SELECT count(*) FROM scraped_groups) - (SELECT count(*) FROM chosen)",
    ),
)
GAUGES = (*KAFKA, *KMINION, *LAG_EXPORTER, *OWN)
