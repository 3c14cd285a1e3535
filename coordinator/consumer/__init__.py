"""The member's side of the classic consumer-group protocol: Kafka's ConsumerCoordinator.

A driver calls `consumer_coordinator.ConsumerCoordinator`; the types of its arguments and results
are in `consumer_settings`, `events`, `consumer_errors` and `protocol`. The other modules are
internal. Nothing here sends requests, reads a clock, starts a thread, or depends on the broker's
side (`coordinator.group`).
"""
