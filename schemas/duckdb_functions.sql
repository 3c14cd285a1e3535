-- Functions of the views in `views.sql`, for DuckDB. `spark_functions.sql` has them for Spark.

-- Convert ms since 1970 to a timestamp. Clients may commit any 64 bits as a time: one outside the years 1 to 9998 is
-- null, because it would make the whole view fail.
CREATE MACRO as_time(ms) AS
CASE WHEN ms BETWEEN -62135596800000 AND 253370764799999 THEN epoch_ms(ms) END;

-- Convert a timestamp to ms since 1970, rounded down. (epoch_ms() rounds to the nearest.)
CREATE MACRO ms_of(time) AS epoch_ms(date_trunc('millisecond', time));

-- Convert an interval to seconds. A month has 30 days.
CREATE MACRO seconds_of(span) AS epoch_ms(span) / 1000;

-- Round to the nearest integer, and a half to the even one.
CREATE MACRO rint(x) AS round_even(x, 0);

-- Return the big-endian number in these bytes of a blob: signed if it has four bytes, unsigned if two. Null past the
-- blob's end.
CREATE MACRO number_at(blob_, place, bytes) AS
CASE WHEN place + bytes <= octet_length(blob_) THEN blob_[place + 1 : place + bytes]::BIT::INTEGER END;

-- Return the length of an array or of nullable bytes: negative for null bytes, null if the blob is too short for it.
CREATE MACRO count_at(blob_, place) AS
CASE WHEN number_at(blob_, place, 4) BETWEEN 0 AND octet_length(blob_) THEN number_at(blob_, place, 4) END;

-- A macro's argument is inserted and computed wherever the macro names it. So a value that is used more than once is
-- bound to a name by a lambda over a list of one.

-- Return the length in bytes of a topic's entry at this place: its name and its partitions.
CREATE MACRO entry_bytes(blob_, place) AS
list_transform(
    [{'start': place, 'name': number_at(blob_, place, 2)}],
    lambda entry: 6 + entry.name + 4 * count_at(blob_, entry.start + 2 + entry.name)
)[1];

-- Return the place of each topic of an assignment, and the end of the last one; that is null if the bytes are cut short.
-- Each step copies the list of places, so more than 10,000 topics (a megabyte of zeros claims more) are not read.
CREATE MACRO topic_places(blob_) AS
list_reduce(
    range(CASE WHEN count_at(blob_, 2) <= 10000 THEN count_at(blob_, 2) END),
    lambda places, n: CASE WHEN places[-1] IS NULL THEN places ELSE list_transform(
        [places[-1]], lambda last: list_append(places, last + entry_bytes(blob_, last))
    )[1] END,
    [6::BIGINT]
);

-- Return consecutive numbers of four bytes. A slice of a blob costs as much as the whole blob, so there is none for each
-- number.
CREATE MACRO numbers_in(blob_) AS
list_transform(regexp_extract_all(hex(blob_), '.{8}'), lambda digits: unhex(digits)::BIT::INTEGER);

CREATE MACRO decode_topic(blob_, start, name_bytes) AS {
    'topic': CASE WHEN name_bytes <= 32767 THEN TRY(decode(blob_[start + 3 : start + 2 + name_bytes])) END,
    'partitions': numbers_in(blob_[
        start + 7 + name_bytes : start + 6 + name_bytes + 4 * count_at(blob_, start + 2 + name_bytes)
    ])
};

-- Whether nullable bytes are at this place: the user data of the assignor, after the topics.
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

-- Decode the assignment of a member by its leader (ConsumerProtocolAssignment, versions 0 to 3). Empty bytes are an
-- empty assignment; invalid bytes are null.
CREATE MACRO decode_assignment(assignment) AS
CASE WHEN octet_length(assignment) = 0 THEN []
     ELSE list_transform(
         [assignment],
         lambda blob_: list_transform(
             [topic_places(blob_)], lambda places: if_named(decode_topics(blob_, places))
         )[1]
     )[1] END;
