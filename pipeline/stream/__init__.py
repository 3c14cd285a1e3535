"""The streaming query: it reads requests, decides them, and writes the responses.

`event_source` waits for requests; `event_tables` reads them; `packed_events` packs them. `stateful`
decides each group. `sink` writes records and then responses. `timer_schedule` makes the source
begin a batch when a timer is due. `spark_engine` runs the query for a node.

`pipeline.session` has all use of interfaces that Spark does not publish. The formats
(`packed_events`, `offset`) import no Spark. No module here knows which node owns a partition.
"""

# The modules of this package that Spark's Python processes import for the query's source and
# functions.
WORKER_IMPORTS = (
    "group_coordinator.pipeline.stream.event_source",
    "group_coordinator.pipeline.stream.stateful",
)
