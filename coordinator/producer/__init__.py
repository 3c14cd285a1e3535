"""The pure part of a Kafka producer: partitioning, and batching before the write.

`record_producer_settings` has Kafka's producer settings. `partitioners` choose a record's
partition. `record_accumulator` collects records in batches, in a deque for each partition. Nothing
here reads a clock, starts a thread, or knows where records are written.
"""
