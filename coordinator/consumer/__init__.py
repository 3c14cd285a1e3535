"""The member's side of the classic consumer-group protocol: Kafka's ConsumerCoordinator.

A client drives `consumer_coordinator.ConsumerCoordinator`. The types of its arguments and results
are in `consumer_settings`, `events`, `consumer_errors` and `protocol`. `assignors` has Kafka's
assignors. The other modules are internal. Nothing here sends requests, reads a clock, starts a
thread, or depends on the broker's side (`coordinator.group`).
"""
