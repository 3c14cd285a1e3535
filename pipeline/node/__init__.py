"""A coordinator node: takes offsets partitions over, decides for their groups, hands them over.

`node.CoordinatorNode` is one node and has a `query`. `job.run` runs a node in the foreground, on
Spark; `shutdown` stops it. `process` runs a node as a child process.

`bootstrap`, `load_events`, `remembered`, `waiting_requests` and `recorded_requests` write the
events of a take-over, and `read_ahead` reads for it. `handover` adds partitions to a running stream
and removes them. `packaging` writes the archive for the executors of a cluster, and the script that
spark-submit starts; `needed` finds the packages that a Python lacks.

`cli` and `replay` may import from here. Only `job`, `coordinating` and `executors` handle a Spark
session: the node uses its stream through the protocols in `engine`. The node does not depend on
members, workers or the command line.
"""
