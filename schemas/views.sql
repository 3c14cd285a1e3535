-- The views of a root. Each statement may use the tables of `schemas` and the statements before it, and ends with a
-- semicolon at the end of a line. VIEWS.md describes the columns. Times are UTC.
-- DuckDB runs the statements unchanged, with the macros of `duckdb_functions.sql`. Spark runs them with the functions of
-- `spark_functions.sql`, after pipeline/spark/view_sql.py has replaced some words. A test compares types and rows of
-- every view in both. They differ in these points:
-- * A CAST to an integer truncates in Spark and rounds in DuckDB: call rint() first.
-- * Lengths and row numbers are INTEGER in Spark: CAST to BIGINT. A decimal literal is a DECIMAL there: write 1e3.
-- * A sum of BIGINTs that is too large fails in Spark: use DECIMAL(28, 0) for values that clients choose.
-- * Days and times of day are those of the session's zone in Spark: use ms_of() and as_time().
-- * Spark has no UNION ALL BY NAME, EXCLUDE, REPLACE, FILTER without WHERE, or arg_max that ignores nulls.
-- * A table or view after FROM or JOIN gets no alias, because register_views gives it one for its prefix.


-- The number of records from a committed offset to the end. Clients may commit any 64 bits as an offset: a negative one
-- counts as 0, because the difference could overflow.
CREATE MACRO behind(end_, committed) AS
greatest(end_ - greatest(committed, 0), 0);

-- The time of an offset within a range of offsets that were written evenly from first_ms to last_ms.
CREATE MACRO at_offset(wanted, base, end_, first_ms, last_ms) AS
first_ms + CASE WHEN end_ - base > 1 AND wanted < end_
                THEN CAST(rint((last_ms - first_ms) * ((wanted - base) / (end_ - base - 1))) AS BIGINT)
                ELSE 0 END;

-- The end of a partition at a time within a step of its timeline.
CREATE MACRO end_at(now_ms, end_, next_end, at_ms, next_ms) AS
CASE WHEN next_ms > at_ms AND now_ms < next_ms
     THEN end_ + CAST(rint((next_end - end_) * ((now_ms - at_ms) / (next_ms - at_ms))) AS BIGINT)
     ELSE end_ END;

-- The newest record of every key (`schemas.records.RECORD_KEY`) of the offsets topic; a tombstone's values are null.
CREATE VIEW newest_records AS
SELECT offsets_topic.*
FROM offsets_topic JOIN (
    SELECT "partition", group_id, max(log_offset) AS log_offset
    FROM offsets_topic
    GROUP BY "partition", group_id, record_type, topic, topic_partition, "key"
) newest
ON newest."partition" = offsets_topic."partition" AND newest.log_offset = offsets_topic.log_offset
AND newest.group_id = offsets_topic.group_id;

-- The committed offsets: one row per partition. Each column is a separate aggregate, so that a query computes only the
-- columns that it names, and a query of a few groups reads only their records.
CREATE VIEW committed_offsets AS
SELECT
    group_id,
    topic,
    "partition",
    committed_offset,
    leader_epoch,
    metadata,
    as_time(commit_timestamp) AS committed_at,
    CASE WHEN expire_timestamp >= 0 THEN as_time(expire_timestamp) END AS expires_at,
    reason,
    request_id
FROM (
    SELECT
        group_id,
        topic,
        topic_partition AS "partition",
        arg_max_null(offset_commit."offset", log_offset) AS committed_offset,
        arg_max_null(offset_commit.leader_epoch, log_offset) AS leader_epoch,
        arg_max_null(offset_commit.metadata, log_offset) AS metadata,
        arg_max_null(offset_commit.commit_timestamp, log_offset) AS commit_timestamp,
        arg_max_null(offset_commit.expire_timestamp, log_offset) AS expire_timestamp,
        arg_max_null(reason, log_offset) AS reason,
        arg_max_null(request_id, log_offset) AS request_id
    FROM offsets_topic
    WHERE record_type = 'offset_commit'
    GROUP BY offsets_topic."partition", group_id, topic, topic_partition
) newest
WHERE committed_offset IS NOT NULL;

-- The last stored metadata of every group: its members, generation and protocol.
CREATE VIEW stored_groups AS
SELECT offsets_topic.group_id AS group_id, group_metadata
FROM offsets_topic JOIN (
    SELECT "partition", group_id, max(log_offset) AS log_offset
    FROM offsets_topic
    WHERE record_type = 'group_metadata'
    GROUP BY "partition", group_id
) newest
ON newest."partition" = offsets_topic."partition" AND newest.log_offset = offsets_topic.log_offset
AND newest.group_id = offsets_topic.group_id
WHERE record_type = 'group_metadata' AND group_metadata IS NOT NULL;

-- The groups with records of kinds that this release does not know, and these kinds.
CREATE VIEW unknown_groups AS
SELECT group_id, array_to_string(array_sort(array_agg(DISTINCT record_type)), ', ') AS kind
FROM (
    SELECT
        group_id,
        record_type,
        arg_max_null(offset_commit IS NULL AND group_metadata IS NULL AND "value" IS NULL, log_offset) AS is_tombstone
    FROM offsets_topic
    WHERE record_type NOT IN ('offset_commit', 'group_metadata') AND group_id IS NOT NULL
    GROUP BY "partition", group_id, record_type, topic, topic_partition, "key"
) newest
WHERE NOT is_tombstone
GROUP BY group_id;

-- All known offset records, in the log and in the history. Compaction adds a record to the history before it removes it
-- from the log: between the two, the record is in both.
CREATE VIEW offset_records AS
SELECT
    "partition", record_type, group_id, "timestamp", log_offset, topic, topic_partition, offset_commit, group_metadata,
    reason, request_id
FROM offsets_topic WHERE record_type = 'offset_commit'
UNION ALL
SELECT
    "partition", record_type, group_id, "timestamp", log_offset, topic, topic_partition, offset_commit, group_metadata,
    reason, request_id
FROM offsets_history
WHERE NOT EXISTS (
    SELECT 1 FROM offsets_topic
    WHERE offsets_topic."partition" = offsets_history."partition"
    AND offsets_topic.log_offset = offsets_history.log_offset
);

-- The committed offsets at a time (UTC), as far back as offsets_history.retention.ms reaches:
-- SELECT * FROM offsets_as_of(TIMESTAMP '2026-11-17 12:00')
CREATE MACRO offsets_as_of(moment) AS TABLE
SELECT
    group_id,
    topic,
    topic_partition AS "partition",
    offset_commit."offset" AS committed_offset,
    offset_commit.leader_epoch AS leader_epoch,
    offset_commit.metadata AS metadata,
    "timestamp" AS written_at,
    reason,
    request_id
FROM (
    SELECT * FROM offset_records WHERE "timestamp" <= moment
    QUALIFY row_number() OVER (
        PARTITION BY "partition", group_id, topic, topic_partition ORDER BY log_offset DESC
    ) = 1
)
WHERE offset_commit IS NOT NULL;

-- All known commits and tombstones, with the previous offset.
CREATE VIEW offset_history AS
SELECT
    group_id,
    topic,
    topic_partition AS "partition",
    "timestamp" AS written_at,
    log_offset,
    offset_commit."offset" AS committed_offset,
    lag(offset_commit."offset") OVER (
        PARTITION BY "partition", group_id, topic, topic_partition ORDER BY log_offset
    ) AS previous_offset,
    offset_commit IS NULL AS is_tombstone,
    reason,
    request_id
FROM offset_records;

-- All retained requests of senders that are not members of the group, and their effects on the group's offsets. Kafka's
-- tools send them, and consumers that assign their own partitions: these only advance.
CREATE VIEW changes_without_member AS
SELECT
    requests.group_id AS group_id,
    sent_at,
    api,
    CASE WHEN api = 'leave_group' THEN 'removed' WHEN api <> 'offset_commit' THEN 'deleted' ELSE did END AS did,
    partitions,
    principal,
    client_id,
    client_host,
    requests.request_id AS request_id
FROM requests
LEFT JOIN (
    SELECT
        group_id,
        request_id,
        CASE
            WHEN bool_or(committed_offset < previous_offset) THEN 'set back'
            WHEN bool_or(previous_offset IS NULL) THEN 'created'
            WHEN bool_or(committed_offset > previous_offset) THEN 'set forward'
            ELSE 'set again'
        END AS did,
        count(*) AS partitions
    FROM offset_history
    WHERE request_id IS NOT NULL
    GROUP BY group_id, request_id
) effects
ON effects.group_id = requests.group_id AND effects.request_id = requests.request_id
WHERE api IN ('delete_groups', 'offset_delete')
OR api = 'offset_commit' AND coalesce(offset_commit.member_id, '') = ''
OR api = 'leave_group' AND coalesce(list_extract(leave_group.members, 1).member_id, '') = '';

-- All retained requests, and the effects on the group's offsets of those from senders that are not members.
CREATE VIEW request_effects AS
SELECT
    requests.request_id AS request_id,
    requests.group_id AS group_id,
    requests.sent_at AS sent_at,
    requests.api AS api,
    changes_without_member.request_id IS NOT NULL AS is_without_member,
    did,
    requests.principal AS principal,
    signature IS NOT NULL AS is_signed,
    requests.client_id AS client_id,
    requests.client_host AS client_host,
    offset_commit,
    offset_delete,
    join_group,
    leave_group
FROM requests
LEFT JOIN changes_without_member
ON changes_without_member.group_id = requests.group_id AND changes_without_member.request_id = requests.request_id;

-- The state of every group, from its last transition; a group that only stores offsets is Empty. A group with records of
-- unknown kinds is Unknown, as in Kafka.
CREATE VIEW groups AS
SELECT
    group_id,
    coalesce(
        CASE WHEN max(kind) IS NOT NULL THEN 'Unknown' END,
        CASE WHEN max(to_state) <> 'Dead' THEN max(to_state) END,
        CASE WHEN max(members) > 0 THEN 'Stable' ELSE 'Empty' END
    ) AS state,
    coalesce(max(protocol_type), '') AS protocol_type,
    max(protocol) AS protocol,
    coalesce(max(stepped_generation), max(stored_generation), 0) AS generation,
    max(leader) AS leader,
    coalesce(max(members), 0) AS num_members,
    coalesce(max(offsets), 0) AS num_offsets,
    max(since) AS since,
    max(reason) AS reason,
    coalesce(max(kind), 'Classic') AS kind
FROM (
    -- Each part has a group at most once. The parts are not joined, so that a query of one group reads only its records.
    SELECT
        group_id,
        true AS is_known,
        group_metadata.protocol_type AS protocol_type,
        group_metadata.protocol AS protocol,
        group_metadata.generation AS stored_generation,
        group_metadata.leader AS leader,
        CAST(len(group_metadata.members) AS BIGINT) AS members,
        NULL AS offsets,
        NULL AS kind,
        NULL AS to_state,
        NULL AS stepped_generation,
        NULL AS since,
        NULL AS reason
    FROM stored_groups
    UNION ALL
    SELECT group_id, true, NULL, NULL, NULL, NULL, NULL, count(*), NULL, NULL, NULL, NULL, NULL
    FROM committed_offsets GROUP BY group_id
    UNION ALL
    SELECT group_id, true, NULL, NULL, NULL, NULL, NULL, NULL, kind, NULL, NULL, NULL, NULL
    FROM unknown_groups
    UNION ALL
    SELECT
        group_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        arg_max_null(to_state, changed_at),
        arg_max_null(generation, changed_at),
        max(changed_at),
        arg_max_null(reason, changed_at)
    FROM group_events
    WHERE event = 'transition'
    GROUP BY group_id
) parts
GROUP BY group_id
HAVING bool_or(is_known);

-- The members of every group's last stored generation, with their assignments. Timeouts in ms.
CREATE VIEW group_members AS
SELECT
    group_id,
    generation,
    member.member_id,
    member.group_instance_id,
    member.client_id,
    member.client_host,
    member.member_id = leader AS is_leader,
    member.session_timeout AS session_timeout_ms,
    member.rebalance_timeout AS rebalance_timeout_ms,
    CAST(octet_length(member.assignment) AS BIGINT) AS assignment_bytes,
    CASE WHEN protocol_type = 'consumer' THEN decode_assignment(member.assignment) END AS assignment
FROM (
    SELECT
        group_id,
        group_metadata.generation AS generation,
        group_metadata.leader AS leader,
        group_metadata.protocol_type AS protocol_type,
        unnest(group_metadata.members) AS member
    FROM stored_groups
) stored;

-- The member with each assigned partition: one row for each partition.
CREATE VIEW member_partitions AS
SELECT group_id, generation, member_id, client_id, client_host, assigned.topic AS topic,
       unnest(assigned.partitions) AS "partition"
FROM (
    SELECT group_id, generation, member_id, client_id, client_host, unnest(assignment) AS assigned
    FROM group_members
) members;

-- The number of members that share a topic, and the number of partitions that they have together.
CREATE VIEW group_topics AS
SELECT group_id, assigned.topic AS topic, count(*) AS members,
       CAST(sum(len(assigned.partitions)) AS BIGINT) AS partitions
FROM (SELECT group_id, unnest(assignment) AS assigned FROM group_members) members
GROUP BY ALL;

-- The number of members of each group that have no partition.
CREATE VIEW empty_members AS
SELECT group_id, count(*) AS members
FROM group_members
WHERE len(assignment) = 0
GROUP BY group_id;

-- All rebalances: start, reason, the time at which the next generation was stored, and its number.
CREATE VIEW rebalances AS
SELECT group_id, started_at, reason, ended_at, ms_of(ended_at) - ms_of(started_at) AS ms,
       generation_before, generation, request_id
FROM (
    SELECT
        group_id, changed_at AS started_at, to_state, reason, request_id, generation AS generation_before,
        lead(changed_at) OVER later AS ended_at,
        lead(generation) OVER later AS generation
    FROM group_events
    WHERE event = 'transition' AND to_state IN ('PreparingRebalance', 'Stable', 'Empty')
    WINDOW later AS (PARTITION BY group_id ORDER BY changed_at)
)
WHERE to_state = 'PreparingRebalance';

-- The expiry of each committed offset if nothing changes: by its own time, or a week (Kafka's default retention) after
-- its group became empty, or, for a group that never had members, after the commit.
CREATE VIEW expiring_offsets AS
SELECT
    committed_offsets.*,
    state,
    coalesce(
        expires_at,
        as_time(ms_of(CASE WHEN protocol_type = '' THEN committed_at ELSE since END) + 604800000)
    ) AS due_at
FROM committed_offsets JOIN groups USING (group_id)
WHERE state = 'Empty';

-- The ACLs in force: the newest row of each that added it. `acl_changes` is the table `acls` itself.
CREATE VIEW acls AS
SELECT
    resource_type, resource_name, pattern_type, principal, host, operation, permission,
    changed_at AS added_at, changed_by AS added_by
FROM (
    SELECT *, row_number() OVER (
        PARTITION BY resource_type, resource_name, pattern_type, principal, host, operation, permission
        ORDER BY "number" DESC
    ) AS age
    FROM acl_changes
)
WHERE age = 1 AND added;

-- The topics of the catalogue: the newest row of each, and the table that holds the topic's records, if it has one. The
-- table belongs to a user, or, with a `config`, to the topic, and is then within the root. A row of `topic_tables`
-- applies if the topic was created at the same time. `topic_changes` is the table `topics` itself.
CREATE VIEW topics AS
SELECT newest.topic, partitions, newest.changed_at AS changed_at, table_location, key_column,
       partition_column, value_column, timestamp_column, config, topic_id, table_location AS "table"
FROM (
    SELECT
        topic,
        partitions,
        changed_at,
        min(changed_at) FILTER (WHERE partitions IS NOT NULL) OVER (PARTITION BY topic, deletions) AS created_at
    FROM (
        SELECT *, count(*) FILTER (WHERE partitions IS NULL) OVER (
            PARTITION BY topic ORDER BY changed_at
        ) AS deletions
        FROM topic_changes
    )
    QUALIFY row_number() OVER (PARTITION BY topic ORDER BY changed_at DESC) = 1 AND partitions > 0
) newest
LEFT JOIN (SELECT DISTINCT * FROM topic_tables) defined
ON defined.topic = newest.topic AND defined.changed_at = newest.created_at;

-- The ranges of offsets of each partition, base_offset to end_offset - 1. first_at and last_at are the times of the
-- records; they became readable between visible_from and visible_to. A row without records marks the end of its
-- partition, or with is_start its start.
CREATE VIEW topic_segments AS
SELECT
    topic_index.topic AS topic,
    topic_index."partition" AS "partition",
    base_offset,
    base_offset + "count" AS end_offset,
    as_time(min_timestamp) AS first_at,
    as_time(max_timestamp) AS last_at,
    as_time(committed_at) AS visible_from,
    as_time(committed_at) AS visible_to,
    "file" IS NULL AS is_start
FROM topic_index JOIN topics ON topics.topic_id = topic_index.topic_id
WHERE topic_index."partition" IS NOT NULL
UNION ALL
SELECT topic, "partition", base_offset, end_offset, as_time(min_timestamp), as_time(max_timestamp),
       as_time(min_timestamp), as_time(max_timestamp), false
FROM log_segments;

-- The first offset and the end offset of each partition, for topics that are tables. unindexed_since: the time of the
-- first rows of a user's table that are not indexed yet, and so are after the known end.
CREATE VIEW topic_ends AS
SELECT
    numbered.topic AS topic,
    numbered."partition" AS "partition",
    coalesce(log_start, 0) AS log_start_offset,
    coalesce(log_end, 0) AS log_end_offset,
    newest_record_at,
    as_time(unindexed_topics.since) AS unindexed_since
FROM (
    SELECT topic, CAST(number AS INTEGER) AS "partition"
    FROM (SELECT topic, unnest(generate_series(0, partitions - 1)) AS number FROM topics WHERE table_location IS NOT NULL) counted
) numbered
LEFT JOIN (
    SELECT
        topic,
        "partition",
        coalesce(max(CASE WHEN is_start THEN base_offset END), min(base_offset)) AS log_start,
        max(end_offset) AS log_end,
        max(last_at) AS newest_record_at
    FROM topic_segments
    GROUP BY topic, "partition"
) known
ON known.topic = numbered.topic AND known."partition" = numbered."partition"
LEFT JOIN unindexed_topics ON unindexed_topics.topic = numbered.topic;

-- The sums of each topic's first offsets and end offsets.
CREATE VIEW topic_offsets AS
SELECT
    topic,
    CAST(sum(CAST(log_start_offset AS DECIMAL(28, 0))) AS DOUBLE) AS log_start_offsets,
    CAST(sum(CAST(log_end_offset AS DECIMAL(28, 0))) AS DOUBLE) AS log_end_offsets
FROM topic_ends
GROUP BY topic;

-- The lag of each group in each partition with a committed offset; null if the topic is not a table, because its ends
-- are unknown. lag_seconds: the age of the first unread record.
CREATE VIEW lag AS
SELECT
    group_id,
    ended.topic AS topic,
    ended."partition" AS "partition",
    committed_offset,
    log_start_offset,
    log_end_offset,
    CASE WHEN log_end_offset IS NOT NULL THEN behind(log_end_offset, committed_offset) END AS lag,
    CASE
        WHEN log_end_offset IS NULL THEN NULL
        WHEN committed_offset >= log_end_offset THEN 0e0
        ELSE greatest(ms_of(snapshot_time()) - at_offset(
            unread, base_offset, end_offset, ms_of(first_at), ms_of(last_at)
        ), 0) / 1e3
    END AS lag_seconds,
    CASE WHEN committed_offset < log_end_offset THEN as_time(at_offset(
        unread, base_offset, end_offset, ms_of(visible_from), ms_of(visible_to)
    )) END AS unread_since,
    committed_at
FROM (
    SELECT committed_offsets.*, log_start_offset, log_end_offset,
           greatest(committed_offset, log_start_offset) AS unread
    FROM committed_offsets
    LEFT JOIN topic_ends
    ON topic_ends.topic = committed_offsets.topic AND topic_ends."partition" = committed_offsets."partition"
) ended
ASOF LEFT JOIN (SELECT * FROM topic_segments WHERE end_offset > base_offset) segments
ON segments.topic = ended.topic AND segments."partition" = ended."partition"
AND ended.unread >= segments.base_offset;

-- The lag of each group in all its partitions, and the greatest of a partition. Null: no end is known.
CREATE VIEW group_lag AS
SELECT group_id, CAST(sum(lag) AS BIGINT) AS lag, max(lag) AS max_lag, max(lag_seconds) AS lag_seconds
FROM lag
GROUP BY group_id;

-- The lag of each group in a topic, and the sum of its committed offsets there.
CREATE VIEW group_topic_lag AS
SELECT
    group_id,
    topic,
    CAST(sum(lag) AS BIGINT) AS lag,
    CAST(sum(CAST(committed_offset AS DECIMAL(28, 0))) AS DOUBLE) AS committed_offsets
FROM lag
GROUP BY group_id, topic;

-- The lag with the member that has the partition, if there is one.
CREATE VIEW owned_lag AS
SELECT lag.*, member_id, client_id, client_host
FROM lag
LEFT JOIN (
    SELECT
        group_id,
        topic,
        "partition",
        max(member_id) AS member_id,
        arg_max_null(client_id, member_id) AS client_id,
        arg_max_null(client_host, member_id) AS client_host
    FROM member_partitions
    GROUP BY group_id, topic, "partition"
) owners
ON owners.group_id = lag.group_id AND owners.topic = lag.topic AND owners."partition" = lag."partition";

-- The position of each group in every partition with a committed offset or an assigned member: one row for each member.
-- The two are not joined, so that a query of one group reads only its records.
CREATE VIEW group_partitions AS
SELECT
    placed.group_id AS group_id,
    placed.topic AS topic,
    placed."partition" AS "partition",
    leader_epoch,
    committed_offset,
    log_end_offset,
    CASE WHEN log_end_offset IS NOT NULL AND committed_offset IS NOT NULL
         THEN behind(log_end_offset, committed_offset) END AS lag,
    member_id,
    client_host,
    client_id
FROM (
    SELECT
        group_id,
        topic,
        "partition",
        max(leader_epoch) OVER place AS leader_epoch,
        max(committed_offset) OVER place AS committed_offset,
        is_held,
        bool_or(is_held) OVER place AS is_held_by_any,
        member_id,
        client_host,
        client_id
    FROM (
        SELECT
            group_id,
            topic,
            "partition",
            CASE WHEN leader_epoch >= 0 THEN leader_epoch END AS leader_epoch,
            committed_offset,
            false AS is_held,
            NULL AS member_id,
            NULL AS client_host,
            NULL AS client_id
        FROM committed_offsets
        UNION ALL
        SELECT group_id, topic, "partition", NULL, NULL, true, member_id, client_host, client_id
        FROM member_partitions
    ) parts
    WINDOW place AS (PARTITION BY group_id, topic, "partition")
) placed
LEFT JOIN topic_ends ON topic_ends.topic = placed.topic AND topic_ends."partition" = placed."partition"
WHERE is_held OR NOT is_held_by_any;

-- The end of each partition over time: it grew evenly from log_end_offset at a time to next_end_offset at next_at. A
-- commit of a user's table adds all its records at once.
CREATE VIEW topic_timeline AS
SELECT topic, "partition", changed_at, log_end_offset, next_at, next_end_offset, changed_at AS "at"
FROM (
    SELECT
        topic,
        "partition",
        changed_at,
        log_end_offset,
        lead(changed_at) OVER later AS next_at,
        lead(log_end_offset) OVER later AS next_end_offset
    FROM (
        SELECT topic, "partition", visible_from AS changed_at, base_offset AS log_end_offset
        FROM topic_segments WHERE end_offset > base_offset
        UNION ALL
        SELECT topic, "partition", visible_to, end_offset
        FROM topic_segments WHERE end_offset > base_offset
    ) points
    WHERE changed_at IS NOT NULL
    WINDOW later AS (PARTITION BY topic, "partition" ORDER BY changed_at, log_end_offset)
) steps
WHERE next_at IS NULL OR next_at > changed_at;

-- All known commits with the lag at that time, for topics that are tables. commits_since counts the later commits of the
-- same partition.
CREATE VIEW lag_history AS
SELECT
    group_id,
    commits.topic AS topic,
    commits."partition" AS "partition",
    written_at,
    log_offset,
    commits_since,
    committed_offset,
    end_at(
        ms_of(written_at), log_end_offset, next_end_offset, ms_of(topic_timeline.changed_at), ms_of(next_at)
    ) AS log_end_offset,
    CASE WHEN log_end_offset IS NOT NULL THEN behind(end_at(
        ms_of(written_at), log_end_offset, next_end_offset, ms_of(topic_timeline.changed_at), ms_of(next_at)
    ), committed_offset) END AS lag,
    request_id
FROM (
    SELECT *, CAST(row_number() OVER (
        PARTITION BY group_id, topic, "partition" ORDER BY log_offset DESC
    ) - 1 AS BIGINT) AS commits_since
    FROM offset_history WHERE NOT is_tombstone
) commits
ASOF LEFT JOIN topic_timeline
ON topic_timeline.topic = commits.topic AND topic_timeline."partition" = commits."partition"
AND commits.written_at >= topic_timeline.changed_at;

-- The verdict on each partition's consumer, from the commits of the given period, and at least the last ten:
-- SELECT * FROM verdicts_over(INTERVAL 1 HOUR)
-- The trend is a regression line through the lags since the lag was last 0. VIEWS.md has the rules. Null: an end is
-- unknown.
CREATE MACRO verdicts_over(span) AS TABLE
SELECT
    group_id,
    topic,
    "partition",
    verdict,
    CASE
        WHEN verdict IS NULL THEN 'the ends of the topic are not known'
        WHEN lag = 0 THEN 'nothing is unread'
        WHEN verdict = 'stopped' THEN 'records are unread, and nothing was committed for longer than the last commits took'
        WHEN verdict = 'stalled' THEN 'the last commits have all the same offset, though records are unread'
        WHEN verdict = 'lagging' THEN printf(
            'the lag grows: %.1f records a second are read, and %.1f come; %.1f a second would catch up in %.0f s',
            rint(10 * read_rate) / 10, rint(10 * added_rate) / 10, rint(10 * catch_up_rate) / 10, rint(span_s)
        )
        WHEN commits < 2 THEN 'a single commit does not tell'
        WHEN was_read_lately THEN 'all was read less than a minute ago'
        WHEN lags < 3 THEN 'two commits do not tell how the lag changes'
        ELSE 'the lag does not grow'
    END AS reason,
    committed_offset,
    log_end_offset,
    lag,
    lag_seconds,
    commits,
    first_commit_at,
    last_commit_at,
    least_lag,
    greatest_lag,
    CASE WHEN abs(read_rate) < CAST('Infinity' AS DOUBLE) THEN read_rate END AS read_rate,
    CASE WHEN abs(added_rate) < CAST('Infinity' AS DOUBLE) THEN added_rate END AS added_rate,
    CASE WHEN verdict = 'lagging' THEN catch_up_rate END AS catch_up_rate
FROM (
    SELECT
        lag.*,
        coalesce(commits, 0) AS commits,
        lags,
        first_commit_at,
        last_commit_at,
        least_lag,
        greatest_lag,
        read_rate,
        added_rate,
        seconds_of(span) AS span_s,
        added_rate + lag.lag / (seconds_of(span)) AS catch_up_rate,
        ms_of(snapshot_time()) - zero_ms < 60000 AS was_read_lately,
        CASE
            WHEN lag.lag IS NULL THEN NULL
            WHEN lag.lag = 0 THEN 'OK'
            WHEN silent_ms > quiet_ms AND ms_of(snapshot_time()) - ms_of(unread_since) > quiet_ms THEN 'stopped'
            WHEN was_read_lately OR commits < 2 THEN 'OK'
            WHEN is_still THEN 'stalled'
            WHEN lags >= 3 AND abs(slope) < CAST('Infinity' AS DOUBLE) AND slope > 0 AND (fit >= 0.5 OR never_shrank) AND last_lag > mean_lag THEN 'lagging'
            ELSE 'OK'
        END AS verdict
    FROM lag
    LEFT JOIN (
        SELECT
            group_id,
            topic,
            "partition",
            count(*) AS commits,
            min(written_at) AS first_commit_at,
            max(written_at) AS last_commit_at,
            min(lag) AS least_lag,
            max(lag) AS greatest_lag,
            regr_slope(CAST(committed_offset AS DOUBLE), at_s) AS read_rate,
            regr_slope(CAST(log_end_offset AS DOUBLE), at_s) AS added_rate,
            max(zero_ms) AS zero_ms,
            count(lag) FILTER (WHERE is_since) AS lags,
            regr_slope(CAST(lag AS DOUBLE), at_s) FILTER (WHERE is_since) AS slope,
            regr_r2(CAST(lag AS DOUBLE), at_s) FILTER (WHERE is_since) AS fit,
            coalesce(bool_and(lag >= lag_before) FILTER (WHERE is_since), true) AS never_shrank,
            avg(lag) FILTER (WHERE is_since) AS mean_lag,
            arg_max_null(lag, log_offset) FILTER (WHERE lag IS NOT NULL) AS last_lag,
            count(DISTINCT committed_offset) FILTER (WHERE commits_since < 10) = 1 AS is_still,
            ms_of(snapshot_time()) - ms_of(max(written_at)) AS silent_ms,
            greatest(
                ms_of(max(written_at)) - ms_of(min(written_at) FILTER (WHERE commits_since < 10)), 60000
            ) AS quiet_ms
        FROM (
            SELECT *, zero_ms IS NULL OR ms_of(written_at) > zero_ms AS is_since
            FROM (
                SELECT
                    group_id, topic, "partition", written_at, log_offset, commits_since, committed_offset, log_end_offset, lag,
                    ms_of(written_at) / 1000 AS at_s,
                    lag(lag) OVER (PARTITION BY group_id, topic, "partition" ORDER BY log_offset) AS lag_before,
                    max(CASE WHEN lag = 0 THEN ms_of(written_at) END) OVER (
                        PARTITION BY group_id, topic, "partition"
                    ) AS zero_ms
                FROM lag_history
                WHERE commits_since < 10 OR ms_of(written_at) >= ms_of(snapshot_time()) - 1000 * seconds_of(span)
            ) commits
        ) placed
        GROUP BY group_id, topic, "partition"
    ) recent
    ON recent.group_id = lag.group_id AND recent.topic = lag.topic AND recent."partition" = lag."partition"
) judged;

-- The verdicts of the last ten minutes.
CREATE VIEW verdicts AS SELECT * FROM verdicts_over(INTERVAL 10 MINUTE);

-- The worst verdict of each group's partitions.
CREATE VIEW group_verdicts AS
SELECT
    group_id,
    CASE WHEN count(CASE WHEN verdict = 'stopped' THEN 1 END) > 0 THEN 'stopped'
         WHEN count(CASE WHEN verdict = 'stalled' THEN 1 END) > 0 THEN 'stalled'
         WHEN count(CASE WHEN verdict = 'lagging' THEN 1 END) > 0 THEN 'lagging'
         WHEN count(verdict) > 0 THEN 'OK' END AS verdict,
    count(*) AS partitions,
    count(CASE WHEN verdict = 'stopped' THEN 1 END) AS stopped,
    count(CASE WHEN verdict = 'stalled' THEN 1 END) AS stalled,
    count(CASE WHEN verdict = 'lagging' THEN 1 END) AS lagging,
    CAST(sum(lag) AS BIGINT) AS lag,
    max(lag_seconds) AS lag_seconds,
    max(last_commit_at) AS last_commit_at
FROM verdicts
GROUP BY group_id;

-- The owner of each offsets partition, and its address.
CREATE VIEW coordinators AS
SELECT "partition", node_id, host, port, epoch, changed_at AS since
FROM (
    SELECT * FROM coordinator_events WHERE event IN ('claimed', 'released')
    QUALIFY row_number() OVER (PARTITION BY "partition" ORDER BY epoch DESC) = 1
)
WHERE event = 'claimed';

-- The coordinator of each group: the owner of its offsets partition.
CREATE VIEW group_coordinators AS
SELECT group_id, coordinators."partition" AS "partition", node_id, host, port
FROM (
    SELECT group_id, arg_max_null("partition", log_offset) AS "partition"
    FROM offsets_topic
    WHERE group_id IS NOT NULL
    GROUP BY group_id
) located
JOIN coordinators ON coordinators."partition" = located."partition";

-- The state of every group and its coordinator; node_id null: the group has none now.
CREATE VIEW group_states AS
SELECT groups.group_id AS group_id, host, port, node_id, protocol_type, nullif(protocol, '') AS protocol, state,
       generation, num_members
FROM groups LEFT JOIN group_coordinators ON group_coordinators.group_id = groups.group_id;

-- The number of groups, in all and in each of Kafka's states, and of committed offsets.
CREATE VIEW group_counts AS
SELECT
    count(*) AS groups,
    (SELECT count(*) FROM committed_offsets) AS offsets,
    count(*) FILTER (WHERE state = 'PreparingRebalance') AS preparing_rebalance,
    count(*) FILTER (WHERE state = 'CompletingRebalance') AS completing_rebalance,
    count(*) FILTER (WHERE state = 'Stable') AS stable,
    count(*) FILTER (WHERE state = 'Dead') AS dead,
    count(*) FILTER (WHERE state = 'Empty') AS empty
FROM groups;

-- The rows of the list of groups. The reason of a Stable group would only be that its leader synced, so the row has the
-- reason of the rebalance before.
CREATE VIEW group_overview AS
SELECT
    groups.group_id AS group_id,
    state,
    protocol_type,
    protocol,
    generation,
    leader,
    num_members,
    num_offsets,
    since,
    CASE WHEN state = 'Stable' THEN coalesce(rebalanced.reason, groups.reason) ELSE groups.reason END AS reason,
    kind,
    coalesce(partitions, 0) AS partitions,
    lag,
    lag_seconds,
    coalesce(topics, []) AS topics,
    verdict
FROM groups
LEFT JOIN group_verdicts ON group_verdicts.group_id = groups.group_id
LEFT JOIN (
    SELECT group_id, array_sort(array_agg(DISTINCT topic)) AS topics FROM committed_offsets GROUP BY group_id
) committed
ON committed.group_id = groups.group_id
LEFT JOIN (
    SELECT group_id, arg_max_null(reason, changed_at) FILTER (WHERE reason IS NOT NULL) AS reason
    FROM group_events
    WHERE event = 'transition' AND to_state = 'PreparingRebalance'
    GROUP BY group_id
) rebalanced
ON rebalanced.group_id = groups.group_id;
