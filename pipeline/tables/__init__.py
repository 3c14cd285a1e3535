"""The project's tables: their locations under a root, and how they are created, written and read.

Packages above may import from here; this package imports `pipeline.delta` and `schemas`. It depends
on neither the decisions of groups, nor the ownership of partitions, nor Spark. The views over the
tables are in `schemas/views.sql`, and `pipeline.monitor` reads them.
"""
