"""The records of the offsets topic as Kafka stores them in `__consumer_offsets`.

The JSON files describe the messages in Kafka's own schema notation; `codec` reads and writes them.
"""
