"""The Spark session, and every use of Spark's private API.

`start` starts a session in a new JVM (`java`, `driver_jvm`) with its settings (`spark_settings`),
jars (`jars`, `checkpoint_location`) and class data archive (`class_archive`). Under spark-submit
the session starts in the existing JVM (`submitted`). `jvm_log` reads the JVM's standard error, and
`scratch` creates temporary folders.

Three parts save time: `hadoop` in each micro-batch, `fork_server` and `stand_in` at the start of
each Python process, and `arrow_groups` with `group_stream` for each group in a worker.
`checkpoint_files` reads and moves the files of a streaming checkpoint.

`guard` lets a coordinator start on a Spark release that has changed a private API; PRIVATE.md lists
all uses. This package does not depend on the logic of the query.
"""
