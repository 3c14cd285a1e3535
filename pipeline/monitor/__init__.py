"""Read-only monitoring of the groups of a root: SQL, lag, verdicts and metrics.

Packages above may import from here. This package imports `pipeline.topics`, `pipeline.tables` and
`pipeline.delta`. It uses neither Spark nor pandas, and needs no running coordinator.
"""
