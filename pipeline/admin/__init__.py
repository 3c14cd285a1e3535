"""An operator's changes of groups: planned from the tables, and made by the coordinator.

A plan has rows for the operator to review: group, topic, partition, current and wanted offset.
Planning writes nothing and prints nothing, so that a command and a page show the same plan. A plan
is executed by requests to the coordinator, which decides whether the group's state allows them.

`cli`, `ui` and `gateway` may import from here. This package imports `pipeline.client`,
`pipeline.monitor`, `pipeline.topics` and `pipeline.tables`. It imports the client only to send
requests, because plans do not need it.
"""
