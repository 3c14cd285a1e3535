"""The streaming query: requests in, answers out.

`event_source` waits for requests, `event_tables` and `event_pages` read them, `packing` packs them,
`stateful` decides each group, `sink` writes records and then responses, `timer_watch` has the
source begin a batch when a timer is due, `serving` is one run of the query, and `spark_engine` is
what a node asks for such runs. `node` may import from here. The session that the query runs in, and
all that Spark does not publish, are `pipeline.session`'s. The formats (`packed`, `packing`,
`offset`, `bootstrap`) import no Spark. Nothing here knows which node owns a partition, or why.
"""

# What Spark's Python processes import of this package, as the query's source and its functions do.
WORKER_IMPORTS = (
    "group_coordinator.pipeline.stream.event_source",
    "group_coordinator.pipeline.stream.stateful",
)
