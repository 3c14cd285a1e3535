"""What Kafka's brokers and clients decide about consumer groups and records, as pure Python.

`group` is the broker's side, `consumer` a member's side, `producer` a producer's; `config` types
settings under Kafka's names and holds the broker's; `ownership` decides which coordinator owns
which offsets partition.
Time, unique ids, randomness and the log's verdict are arguments: nothing here reads a clock, does
I/O, starts a thread, or imports Spark, Arrow, Delta or `pipeline`.
"""
