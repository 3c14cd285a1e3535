"""Read-only monitoring of the groups of a root: SQL, lag, verdicts and metrics.

It uses neither Spark nor pandas, and needs no running coordinator.
"""
