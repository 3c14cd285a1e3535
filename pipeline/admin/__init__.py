"""An operator's changes of groups: planned from the tables, and made by the coordinator.

A plan has rows for the operator to review: group, topic, partition, current and wanted offset.
Planning writes nothing and prints nothing, so a command and a page show the same plan. A plan is
executed by requests, and the coordinator decides whether the group's state allows them.
"""
