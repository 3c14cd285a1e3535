"""The offsets topic as Kafka's own binary records, exported to files and imported from them.

`exporter.export` and `importer.import_` are the ways in; `record_file` is the format of the files.
The bytes of a record are encoded in `schemas.kafka`. An import takes all partitions from running
coordinators through `pipeline.ownership`; it knows neither the stream nor the node.
"""
