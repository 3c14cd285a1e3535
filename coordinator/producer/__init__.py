"""The pure part of a Kafka producer: partitioning, and batching before the write.

`settings` has Kafka's producer settings. `partitioners` choose a record's partition, with the hash
of `murmur2`. `accumulator` collects records in batches, in a deque for each partition. Nothing here
reads a clock, starts a thread, or knows where records are written.
"""
