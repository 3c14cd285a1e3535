"""Reading request events: each one packed into a single string beside its group's id.

A group's rows reach the coordinator in no order and as a pandas frame, whose cost is its number of
columns. So a row becomes `<order key><event as JSON>`: sorting the strings gives the order, and
cutting off `KEY_WIDTH` characters gives the event.

The order within a group and batch: by `sent_at` to the microsecond, events without one last; then
by the event's text, which begins with its request_id. All of it is in the table, so that a batch
that is read again is ordered the same. Neither a file's time nor a row's place in it can take part:
Delta's streaming source has no `_metadata` column, and Spark allows no row ids in a stream. A
producer that sends many events in one millisecond numbers them in the microseconds
(`schemas.tables.to_requests`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pipeline.store import table_uri
from schemas.tables import REQUESTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.settings import CoordinatorSettings

# Microseconds since 1970 of any timestamp that Spark can hold have up to 18 digits.
KEY_WIDTH = 18
# The key of what comes before every request: the coordinator's own control events.
FIRST_KEY = "0" * KEY_WIDTH
_NO_TIME = "9" * KEY_WIDTH
EVENT_COLUMNS = ("group_id", "event")


def read_requests(
    spark: SparkSession, root: str, settings: CoordinatorSettings, first_version: int = 0
) -> DataFrame:
    """Stream the `requests` table as packed events: columns `group_id` and `event`.

    `first_version` is the version of the table that a new checkpoint begins with.
    """
    requests = (
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", settings.max_files_per_trigger)
        .option("startingVersion", first_version)
        # Upkeep deletes old requests; what was deleted has been answered.
        .option("skipChangeCommits", "true")
        .load(table_uri(root, REQUESTS))
    )
    return pack(requests)


def read_seed(spark: SparkSession, uri: str) -> DataFrame:
    """Stream the events that a checkpoint begins with (`pipeline.recovery`)."""
    return spark.readStream.format("delta").load(uri)


def pack(requests: DataFrame) -> DataFrame:
    """Pack rows of the `requests` table into `group_id` and `event`.

    Null fields are left out of the JSON, bytes are base64, `sent_at` is ms.
    """
    micros = F.greatest(F.unix_micros("sent_at"), F.lit(0)).cast("string")
    key = F.when(F.isnull("sent_at"), F.lit(_NO_TIME)).otherwise(F.lpad(micros, KEY_WIDTH, "0"))
    sent_at = F.unix_millis("sent_at").alias("sent_at")
    fields = [sent_at if name == "sent_at" else name for name in REQUESTS.schema.names]
    # A group id that is not UTF-8 would fail on its way to Python and stop every group.
    group_id = F.make_valid_utf8("group_id").alias("group_id")
    return requests.select(group_id, F.concat(key, F.to_json(F.struct(*fields))).alias("event"))


def unpack(events: list[str]) -> list[str]:
    """Return a group's events as JSON texts, in their order."""
    return [event[KEY_WIDTH:] for event in sorted(events)]
