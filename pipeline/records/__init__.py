"""Export and import of the offsets topic as Kafka's own binary records.

The entry points are `exporter.export` and `importer.import_`; `record_file` defines the files. The
bytes of a record are encoded in `schemas.kafka`. An import takes all partitions from running
coordinators through `pipeline.ownership`. It depends on neither the stream nor the node.
"""
