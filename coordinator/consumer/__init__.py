"""The member's side of the classic consumer-group protocol: Kafka's ConsumerCoordinator.

A client drives `coordinator.ConsumerCoordinator`. The types of its arguments and results are in
`settings`, `events`, `errors` and `protocol`. `assignors` has Kafka's assignors. The other modules
are internal. Nothing here sends requests, reads a clock, starts a thread, or depends on the
broker's side (`coordinator.group`).
"""
