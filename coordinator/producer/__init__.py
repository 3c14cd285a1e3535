"""The pure part of a Kafka producer: settings, partitioners, and batches that wait to be written.

Nothing here reads a clock, starts a thread, or knows where records are written.
"""
