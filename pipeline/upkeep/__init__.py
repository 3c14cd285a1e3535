"""Upkeep of the tables: compaction, retention and VACUUM, alone or on a schedule beside a node.

`node` and `cli` may import from here; this package imports `pipeline.topics`, `pipeline.tables` and
`pipeline.delta`. It works on committed files only: it does not know whether a node is running, what
a group's state is, or that Spark exists.
"""
