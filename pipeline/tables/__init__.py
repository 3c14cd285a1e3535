"""The project's tables: where they lie under a root, how they are made and read, and SQL over them.

`stream`, `ownership`, `node`, `upkeep`, `client`, `records`, `replay` and `cli` may import from
here; this package imports `pipeline.delta` and the contract in `schemas.tables`. Nothing here
knows how a group is decided, which node owns it, or that Spark exists.
"""
