"""An operator's changes: planned by what the tables say, and made by the coordinator.

A plan is rows to look at: group, topic, partition, from, to. Nothing is written while it is made
and nothing is printed here, so that a verb and a page show the same plan. To carry it out is to
send requests, as any client does, and the coordinator decides whether a group's state allows them.

`cli`, `ui` and `gateway` may import from here; this package imports `pipeline.client`,
`pipeline.monitor`, `pipeline.topics` and `pipeline.tables`, and the client only where requests are
sent: a plan is made without it.
"""
