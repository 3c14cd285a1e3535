"""Spark's session, and everything that this project uses of Spark and Spark does not publish.

`start` begins a session: a JVM (`java`, `driver_jvm`) with the settings (`spark_settings`), jars
(`jars`, `checkpoint_location`) and classes (`class_archive`) that it needs, or in the JVM of
spark-submit (`submitted`); `jvm_log` reads what that JVM writes, and `scratch` has its temporary
folders. `hadoop` takes work off each batch, `fork_server` and `stand_in` take it off the start of
each Python process, and `arrow_groups`, by `group_stream`, off each group in a worker.
`checkpoint_files` reads and moves the files of a streaming checkpoint. `guard` keeps a coordinator
starting on a release of Spark in which any of this has changed; PRIVATE.md lists it. Nothing here
knows what the query does.
"""
