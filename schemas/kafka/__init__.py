"""Kafka's messages: their schemas, the Structs that hold them, and a codec compiled from both.

The JSON files are Kafka's own message schemas (see NOTICE for their licence and what was changed):
of the APIs that are answered, of the records in `__consumer_offsets`, and of what members and their
leader exchange. `reading` and `writing` compile a function for each message and version at first
use. `codec` reads and writes the records of the offsets topic.
"""
