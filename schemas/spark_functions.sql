-- Functions of the views in `views.sql`, for Spark. `duckdb_functions.sql` has them for DuckDB.

-- Convert ms since 1970 to a timestamp; null outside the years 1 to 9998.
CREATE FUNCTION as_time(ms BIGINT) RETURNS TIMESTAMP RETURN
CASE WHEN ms BETWEEN -62135596800000 AND 253370764799999 THEN timestamp_millis(ms) END;

-- Convert an interval to seconds.
CREATE FUNCTION seconds_of(span INTERVAL DAY TO SECOND) RETURNS DOUBLE RETURN
CAST(86400 * extract(DAY FROM span) + 3600 * extract(HOUR FROM span) + 60 * extract(MINUTE FROM span)
     + extract(SECOND FROM span) AS DOUBLE);

-- Decode the assignment of a member by its leader (ConsumerProtocolAssignment, versions 0 to 3). Empty bytes are an
-- empty assignment; invalid bytes, and more than 10,000 topics, are null.
-- It is one expression, because Spark's lambdas cannot call SQL functions. The unsigned number in the blob is
-- CAST(conv(hex(substring(blob, place + 1, bytes)), 16, 10) AS BIGINT). As a length, 2147483648 and more are negative:
-- `^ 2147483648` and `- 2147483648` extend the sign of a partition. A value that is used more than once is bound to a
-- name by a lambda over an array of one.
CREATE FUNCTION decode_assignment(blob BINARY) RETURNS ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>> RETURN
CASE
WHEN octet_length(blob) = 0 THEN array()
WHEN octet_length(blob) >= 10 AND hex(substring(blob, 1, 2)) < '8000' THEN transform(
    -- The place of each topic, the bytes of its name and the number of its partitions. The next place is null if the
    -- bytes are cut short.
    array(aggregate(
        transform(
            array(CAST(conv(hex(substring(blob, 3, 4)), 16, 10) AS BIGINT)),
            topics -> CASE WHEN topics = 0 THEN array() WHEN topics <= 10000 THEN sequence(1L, topics) END
        )[0],
        CAST(struct(6, array()) AS STRUCT<place: BIGINT, topics: ARRAY<STRUCT<start: BIGINT, name: BIGINT, partitions: BIGINT>>>),
        (read, n) -> CASE WHEN read.place IS NULL THEN read ELSE transform(
            array(CASE WHEN read.place + 2 <= octet_length(blob)
                       THEN CAST(conv(hex(substring(blob, CAST(read.place + 1 AS INT), 2)), 16, 10) AS BIGINT) END),
            name -> transform(
                array(CASE WHEN read.place + 6 + name <= octet_length(blob)
                           THEN CAST(conv(hex(substring(blob, CAST(read.place + 3 + name AS INT), 4)), 16, 10) AS BIGINT) END),
                partitions -> CASE WHEN partitions <= octet_length(blob) THEN struct(
                    read.place + 6 + name + 4 * partitions AS place,
                    array_append(read.topics, struct(read.place AS start, name AS name, partitions AS partitions)) AS topics
                ) ELSE struct(CAST(NULL AS BIGINT) AS place, read.topics AS topics) END
            )[0]
        )[0] END
    )),
    -- After the topics: nullable bytes, the user data of the assignor.
    read -> CASE WHEN read.place + 4 <= octet_length(blob) THEN transform(
        array(CAST(conv(hex(substring(blob, CAST(read.place + 1 AS INT), 4)), 16, 10) AS BIGINT)),
        added -> CASE WHEN added >= 2147483648 OR read.place + 4 + added <= octet_length(blob) THEN transform(
            array(transform(read.topics, each -> struct(
                CASE WHEN each.name <= 32767 THEN try_validate_utf8(
                    CAST(substring(blob, CAST(each.start + 3 AS INT), CAST(each.name AS INT)) AS STRING)
                ) END AS topic,
                transform(
                    CASE WHEN each.partitions > 0 THEN sequence(0L, each.partitions - 1) ELSE array() END,
                    n -> CAST((CAST(conv(hex(
                        substring(blob, CAST(each.start + 7 + each.name + 4 * n AS INT), 4)
                    ), 16, 10) AS BIGINT) ^ 2147483648) - 2147483648 AS INT)
                ) AS partitions
            ))),
            decoded -> CASE WHEN NOT exists(decoded, each -> each.topic IS NULL) THEN decoded END
        )[0] END
    )[0] END
)[0] END;
