"""The Spark session, and every use of Spark's private API.

`start` starts a session in a new JVM (`driver_jvm`) with its `java` and archive of classes, its
settings (`spark_settings`) and its jars (`jars`, `checkpoint_location`). Under spark-submit the
session starts in the existing JVM (`submitted`). `jvm_log` reads the JVM's standard error, and
`scratch` creates temporary folders.

Two parts save time: `fork_server` and `python_shim` at the start of each Python process, and
`arrow_groups` for each group in a worker.
`checkpoint_files` reads and moves the files of a streaming checkpoint.

`guard` lets a coordinator start on a Spark release that has changed a private API; PRIVATE.md lists
all uses. This package does not depend on the logic of the query.
"""
