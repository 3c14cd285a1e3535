"""The streaming query: requests in, answers out.

`event_source` reads requests, `packing` turns them into events, `stateful` decides each group,
`sink` writes records and then responses, `serving` is one run of the query, and `spark_engine` is
what a node asks for such runs. `node`, `bench` and `trials` may import from here. All that touches
Spark is here, and what is private to Spark in `spark_internals`; the formats (`packed`, `packing`,
`offset`, `bootstrap`) import no Spark. Nothing here knows which node owns a partition, or why.
"""
