"""Export and import of the offsets topic as Kafka's own binary records.

Entry points: `exporter.export` and `importer.import_`; `record_file` defines the files, and
`schemas.kafka` the bytes of a record. An import takes all partitions from running coordinators
through `pipeline.ownership`. The package depends on neither the stream nor the node.
"""
