"""Upkeep of the tables: compaction, retention, VACUUM and repair.

A node runs compaction and retention, with VACUUM, on a schedule. `node` and `cli` may import from
here; this package imports `pipeline.topics`, `pipeline.tables` and `pipeline.delta`. It works on
committed files only, and does not depend on running nodes, the state of groups, or Spark.
"""
