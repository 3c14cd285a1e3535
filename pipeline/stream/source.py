"""Request events as the stream has them: each one a single string beside its group's id.

A group's rows reach the coordinator in no order, and each column costs on its way to Python. So a
row becomes `<order key><event as JSON>`: sorting the strings gives the order, and cutting off
`KEY_WIDTH` characters gives the event. The stream's are packed in Python
(`pipeline.stream.packing`); the JVM does it where Spark writes a bootstrap.

The order within a group and batch: by `sent_at` to the microsecond, events without one last; then
by the event's text, which begins with its request_id. All of it is in the table, so that a batch
that is read again is ordered the same. Neither a file's time nor a row's place in it can take part:
Delta's streaming source has no `_metadata` column, and Spark allows no row ids in a stream. A
producer that sends many events in one millisecond numbers them in the microseconds
(`schemas.tables.to_requests`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from coordinator.group.partition import PartitionSet
from schemas.tables import REQUESTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Microseconds since 1970 of any timestamp that Spark can hold have up to 18 digits.
KEY_WIDTH = 18
# The key of what comes before every request: the coordinator's own control events.
FIRST_KEY = "0" * KEY_WIDTH
NO_TIME = "9" * KEY_WIDTH
# An event a row, as the bootstrap has them; and all of a group's, one a line, as the stream has
# them.
PACKED_SCHEMA = pa.schema({"group_id": pa.string(), "event": pa.string()})
STREAM_COLUMNS = ("group_id", "events")


def pack(requests: DataFrame) -> DataFrame:
    """Pack rows of the `requests` table into `group_id` and `event`.

    Null fields are left out of the JSON, bytes are base64, `sent_at` is ms.
    """
    micros = F.greatest(F.unix_micros("sent_at"), F.lit(0)).cast("string")
    key = F.when(F.isnull("sent_at"), F.lit(NO_TIME)).otherwise(F.lpad(micros, KEY_WIDTH, "0"))
    sent_at = F.unix_millis("sent_at").alias("sent_at")
    fields = [sent_at if name == "sent_at" else name for name in REQUESTS.schema.names]
    # A group id that is not UTF-8 would fail on its way to Python and stop every group.
    group_id = F.make_valid_utf8("group_id").alias("group_id")
    return requests.select(group_id, F.concat(key, F.to_json(F.struct(*fields))).alias("event"))


def only(events: DataFrame, partition_set: PartitionSet | None) -> DataFrame:
    """The events of the groups of some offsets partitions.

    Decided in the JVM: a group that is another coordinator's costs no call to Python.
    """
    if partition_set is None:
        return events
    return events.where(
        partition_of("group_id", partition_set.of).isin(sorted(partition_set.partitions))
    )


def partition_of(group_id: str, num_partitions: int) -> Column:
    """The offsets partition of a group id column; 0 where it is null.

    As `coordinator.group.partition.partition_for`: Java's hash goes over UTF-16 code units, which
    are four hexadecimal digits each.
    """
    digits = F.hex(F.encode(group_id, "UTF-16BE"))
    units = (F.length(digits) / 4).cast("int")
    value = F.aggregate(
        F.sequence(F.lit(0), units - 1),
        F.lit(0).cast("bigint"),
        lambda so_far, unit: (
            so_far * 31 + F.conv(F.substr(digits, unit * 4 + 1, F.lit(4)), 16, 10).cast("bigint")
        ).bitwiseAND(0xFFFFFFFF),
    )
    # Within a function of its own, or each mention of the value would compute it anew.
    partition = F.transform(
        F.array(value),
        lambda each: (
            F.when(each < 1 << 31, each).when(each == 1 << 31, 0).otherwise((1 << 32) - each)
            % num_partitions
        ),
    )[0]
    return F.when(units > 0, partition).otherwise(0).cast("int")


def unpack(rows: list[str]) -> list[str]:
    """Return a group's events, packed and one a line, as JSON texts in their order."""
    return [event[KEY_WIDTH:] for event in sorted("\n".join(rows).split("\n"))] if rows else []
