"""The project's tables: where they lie under a root, and how they are made, written and read.

Packages above may import from here; this package imports `pipeline.delta` and `schemas`. Nothing
here knows how a group is decided, which node owns it, or that Spark exists. The views over the
tables are in `schemas/views.sql`, and `pipeline.monitor` reads them.
"""
