"""The decisions of Kafka's brokers and clients about consumer groups and records, as pure Python.

`group` has the decisions of brokers, `consumer` those of group members, `producer` those of
producers. `ownership` decides which node owns which offsets partition. Nothing here reads a clock,
does I/O, starts a thread, or imports Spark, Arrow, Delta or `pipeline`: times, unique ids, random
numbers and the results of appends are arguments.
"""
