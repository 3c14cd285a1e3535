"""Kafka's messages: their schemas, the Structs that hold them, and a codec compiled from both.

The JSON files are Kafka's message schemas (NOTICE has the licence and the changes): of the served
APIs, of the records in `__consumer_offsets`, and of the data that members and their leader
exchange. `reading` and `writing` compile a function for each message and version at first use.
`codec` encodes and decodes the records of the offsets topic.
"""
