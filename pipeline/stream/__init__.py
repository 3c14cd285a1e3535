"""The streaming query: it reads requests, decides them, and writes the responses.

`event_source` waits for requests; `event_tables` and `event_pages` read them; `packing` packs them.
`stateful` decides each group. `sink` writes records and then responses. `timer_watch` makes the
source begin a batch when a timer is due. `serving` is one run of the query, and `spark_engine`
begins these runs for a node.

`node` may import from here. `pipeline.session` has the Spark session, and all use of interfaces
that Spark does not publish. The formats (`packed`, `packing`, `offset`, `bootstrap`) import no
Spark. No module here knows which node owns a partition, or why.
"""

# The modules of this package that Spark's Python processes import for the query's source and
# functions.
WORKER_IMPORTS = (
    "group_coordinator.pipeline.stream.event_source",
    "group_coordinator.pipeline.stream.stateful",
)
