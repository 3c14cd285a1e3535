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

-- Each macro's argument is put in as often as the macro names it, and computed as often: what is used more than once is
-- bound to a name by a lambda over a list of one.

-- The length in bytes of a topic's entry at this place: its name and its partitions.
CREATE MACRO entry_bytes(digits, place) AS
list_transform(
    [{'start': place, 'name': number_at(digits, place, 2)}],
    lambda entry: 6 + entry.name + 4 * count_at(digits, entry.start + 2 + entry.name)
)[1];

-- Where each topic of an assignment begins, and where the last one ends; null if the bytes are cut short.
CREATE MACRO topic_places(digits) AS
list_reduce(
    range(count_at(digits, 2)),
    lambda places, n: list_transform(
        [places[-1]], lambda last: list_append(places, last + entry_bytes(digits, last))
    )[1],
    [6::BIGINT]
);

CREATE MACRO decode_topic(digits, start, name_bytes) AS {
    'topic': TRY(decode(unhex(substr(digits, 2 * start + 5, 2 * name_bytes)))),
    'partitions': list_transform(
        range(count_at(digits, start + 2 + name_bytes)),
        lambda n: number_at(digits, start + 6 + name_bytes + 4 * n, 4)::INTEGER
    )
};

CREATE MACRO decode_topics(digits, places) AS
CASE WHEN 2 * places[-1] <= length(digits)
     THEN list_transform(
         list_transform(places[:-2], lambda start: {'start': start, 'name': number_at(digits, start, 2)}),
         lambda entry: decode_topic(digits, entry.start, entry.name)
     ) END;

CREATE MACRO if_named(topics) AS
list_transform(
    [topics],
    lambda all_: CASE WHEN len(list_filter(all_, lambda each: each.topic IS NULL)) = 0 THEN all_ END
)[1];

-- What a member was assigned, from the bytes of its leader (ConsumerProtocolAssignment, versions 0 to 3). Nothing for
-- no bytes; null for bytes that are something else.
CREATE MACRO decode_assignment(assignment) AS
CASE WHEN octet_length(assignment) = 0 THEN []
     ELSE list_transform(
         [hex(assignment)],
         lambda digits: list_transform(
             [topic_places(digits)], lambda places: if_named(decode_topics(digits, places))
         )[1]
     )[1] END;
