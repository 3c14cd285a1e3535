"""A producer's half of Kafka, pure: which partition a record goes to, and what waits to be written.

`settings` are Kafka's, `partitioners` choose, `accumulator` gathers records in batches, a deque of
them for each partition. Nothing here reads a clock, starts a thread, or knows where records go.
"""
