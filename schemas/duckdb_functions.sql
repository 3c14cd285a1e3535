-- What the views of `views.sql` compute with in DuckDB; `spark_functions.sql` has the same for Spark.

-- A time in ms since 1970 as a timestamp. Clients may commit any 64 bits as a time: one outside of the
-- years 1 to 9998 is null here, or the whole view would fail for it.
CREATE MACRO as_time(ms) AS
CASE WHEN ms BETWEEN -62135596800000 AND 253370764799999 THEN epoch_ms(ms) END;

-- A time as ms since 1970, rounded down; epoch_ms() rounds to the nearest.
CREATE MACRO ms_of(time) AS epoch_ms(date_trunc('millisecond', time));

-- An interval in seconds; a month has 30 days.
CREATE MACRO seconds_of(span) AS epoch_ms(span) / 1000;

-- The nearest integer, of two the even one.
CREATE MACRO rint(x) AS round_even(x, 0);

-- The number in these bytes of a blob, big-endian: of four bytes a signed one, of two never negative; null past its end.
CREATE MACRO number_at(blob_, place, bytes) AS
CASE WHEN place + bytes <= octet_length(blob_) THEN blob_[place + 1 : place + bytes]::BIT::INTEGER END;

-- The length of an array, or of nullable bytes; null for one that the blob has no room for. Bytes that are null have one below 0.
CREATE MACRO count_at(blob_, place) AS
CASE WHEN number_at(blob_, place, 4) BETWEEN 0 AND octet_length(blob_) THEN number_at(blob_, place, 4) END;

-- Each macro's argument is put in as often as the macro names it, and computed as often: what is used more than once is
-- bound to a name by a lambda over a list of one.

-- The length in bytes of a topic's entry at this place: its name and its partitions.
CREATE MACRO entry_bytes(blob_, place) AS
list_transform(
    [{'start': place, 'name': number_at(blob_, place, 2)}],
    lambda entry: 6 + entry.name + 4 * count_at(blob_, entry.start + 2 + entry.name)
)[1];

-- Where each topic of an assignment begins, and where the last one ends; the last is null if the bytes are cut short.
-- Each step copies the places before it: more than 10,000 topics, which a megabyte of zeros has, are not looked at.
CREATE MACRO topic_places(blob_) AS
list_reduce(
    range(CASE WHEN count_at(blob_, 2) <= 10000 THEN count_at(blob_, 2) END),
    lambda places, n: CASE WHEN places[-1] IS NULL THEN places ELSE list_transform(
        [places[-1]], lambda last: list_append(places, last + entry_bytes(blob_, last))
    )[1] END,
    [6::BIGINT]
);

-- Numbers of four bytes, one after the other. Each slice of a blob costs its whole length: not one for each number.
CREATE MACRO numbers_in(blob_) AS
list_transform(regexp_extract_all(hex(blob_), '.{8}'), lambda digits: unhex(digits)::BIT::INTEGER);

CREATE MACRO decode_topic(blob_, start, name_bytes) AS {
    'topic': CASE WHEN name_bytes <= 32767 THEN TRY(decode(blob_[start + 3 : start + 2 + name_bytes])) END,
    'partitions': numbers_in(blob_[
        start + 7 + name_bytes : start + 6 + name_bytes + 4 * count_at(blob_, start + 2 + name_bytes)
    ])
};

-- Whether there are nullable bytes at this place: those that the assignor added, after the topics.
CREATE MACRO has_bytes_at(blob_, place) AS
number_at(blob_, place, 4) < 0 OR place + 4 + count_at(blob_, place) <= octet_length(blob_);

CREATE MACRO decode_topics(blob_, places) AS
CASE WHEN number_at(blob_, 0, 2) <= 32767 AND has_bytes_at(blob_, places[-1])
     THEN list_transform(
         list_transform(places[:-2], lambda start: {'start': start, 'name': number_at(blob_, start, 2)}),
         lambda entry: decode_topic(blob_, entry.start, entry.name)
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
         [assignment],
         lambda blob_: list_transform(
             [topic_places(blob_)], lambda places: if_named(decode_topics(blob_, places))
         )[1]
     )[1] END;
