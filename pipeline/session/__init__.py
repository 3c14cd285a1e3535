"""The Spark session, and every use of Spark's private API.

`start` starts a session in a new JVM (`driver_jvm`), with its `java`, settings (`spark_settings`)
and jars (`jars`, `checkpoint_location`). Under spark-submit the session starts in the existing JVM
(`submitted`). `jvm_log` reads the JVM's standard error, and `scratch` creates temporary folders.

`fork_server` and `python_shim` shorten the start of each Python process, and `arrow_groups` the
work on each group in a worker. `checkpoint_files` reads and moves the files of a streaming
checkpoint. `guard` lets a coordinator start on a Spark release that has changed a private API;
PRIVATE.md lists all uses.
"""
