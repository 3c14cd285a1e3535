"""The decisions of Kafka's brokers and clients about consumer groups and records, as pure Python.

`group` is the broker's side, `consumer` the member's side, `producer` the producer's side. `config`
types settings under Kafka's names and holds the broker's settings. `ownership` decides which
coordinator owns which offsets partition. Time, unique ids, randomness and the results of appends
are arguments: nothing here reads a clock, does I/O, starts a thread, or imports Spark, Arrow, Delta
or `pipeline`.
"""
