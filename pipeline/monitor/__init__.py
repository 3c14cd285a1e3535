"""What the tables of a root tell about its groups: SQL, lag, verdicts, metrics. Only reads.

Packages above may import from here; this package imports `pipeline.topics`, `pipeline.tables` and
`pipeline.delta`. It knows neither Spark nor pandas, and nothing of a running coordinator.
"""
