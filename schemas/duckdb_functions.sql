-- What the views of `views.sql` compute with.

-- A time in ms since 1970 as a timestamp. Clients may commit any 64 bits as a time: one outside of the
-- years 1 to 9998 is null here, or the whole view would fail for it.
CREATE MACRO as_time(ms) AS
CASE WHEN ms BETWEEN -62135596800000 AND 253370764799999 THEN epoch_ms(ms) END;

-- The time of an offset within a span of offsets that were written from first_ms to last_ms.
CREATE MACRO at_offset(wanted, base, end_, first_ms, last_ms) AS
first_ms + CASE WHEN end_ - base > 1 AND wanted < end_
                THEN ((last_ms - first_ms) * ((wanted - base) / (end_ - base - 1)))::BIGINT
                ELSE 0 END;

-- Where a partition ended at a time, within a step of its timeline.
CREATE MACRO end_at(now_ms, end_, next_end, at_ms, next_ms) AS
CASE WHEN next_ms > at_ms AND now_ms < next_ms
     THEN end_ + ((next_end - end_) * ((now_ms - at_ms) / (next_ms - at_ms)))::BIGINT
     ELSE end_ END;

-- The number in these bytes of a blob in hexadecimal digits; null past its end.
CREATE MACRO number_at(digits, place, bytes) AS
CASE WHEN 2 * (place + bytes) <= length(digits)
     THEN TRY_CAST('0x' || substr(digits, 2 * place + 1, 2 * bytes) AS BIGINT) END;

-- An array's length in the consumer protocol, which writes -1 for null.
CREATE MACRO count_at(digits, place) AS
CASE WHEN number_at(digits, place, 4) = 4294967295 THEN 0
     WHEN number_at(digits, place, 4) <= length(digits) // 2 THEN number_at(digits, place, 4) END;

-- Where each topic of an assignment begins, and where the last one ends; null if the bytes are cut short.
CREATE MACRO topic_places(digits) AS
list_reduce(
    range(count_at(digits, 2)),
    lambda places, n: list_append(
        places,
        places[-1] + 6 + number_at(digits, places[-1], 2)
        + 4 * count_at(digits, places[-1] + 2 + number_at(digits, places[-1], 2))
    ),
    [6::BIGINT]
);

CREATE MACRO decode_topics(digits, places) AS
CASE WHEN 2 * places[-1] <= length(digits)
     THEN list_transform(
         places[:-2],
         lambda place: {
             'topic': TRY(decode(unhex(substr(digits, 2 * place + 5, 2 * number_at(digits, place, 2))))),
             'partitions': list_transform(
                 range(count_at(digits, place + 2 + number_at(digits, place, 2))),
                 lambda n: number_at(digits, place + 6 + number_at(digits, place, 2) + 4 * n, 4)::INTEGER
             )
         }
     ) END;

CREATE MACRO if_named(topics) AS
CASE WHEN len(list_filter(topics, lambda each: each.topic IS NULL)) = 0 THEN topics END;

-- What a member was assigned, from the bytes of its leader (ConsumerProtocolAssignment, versions 0 to 3). Nothing for
-- no bytes; null for bytes that are something else.
CREATE MACRO decode_assignment(assignment) AS
CASE WHEN octet_length(assignment) = 0 THEN []
     ELSE if_named(decode_topics(hex(assignment), topic_places(hex(assignment)))) END;
