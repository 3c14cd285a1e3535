"""Upkeep of the tables: compaction, retention and VACUUM, also on a schedule beside a node; repair.

`node` and `cli` may import from here; this package imports `pipeline.topics`, `pipeline.tables` and
`pipeline.delta`. It works on committed files only: it does not know whether a node is running, what
a group's state is, or that Spark exists.
"""
