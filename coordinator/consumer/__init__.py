"""A member's side of the classic consumer-group protocol: Kafka's ConsumerCoordinator.

`coordinator.ConsumerCoordinator` is what a client drives, with `settings`, `events`, `errors` and
`protocol` as the types of its arguments and results; `assignors` divides partitions as Kafka's
assignors do; the other modules are internal. Nothing here knows how requests are sent, reads a
clock, starts a thread, or knows the broker's side (`coordinator.group`).
"""
