"""The streaming query: its source, the function that decides for a group, its sink.

Half of it knows no Spark: the format of events (`packed`, `packing`), `offset` and `bootstrap`.
"""
