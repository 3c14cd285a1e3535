"""A coordinator node: it takes offsets partitions over, decides for their groups, hands them on.

`node.CoordinatorNode` is one node, with its `query`; `job.run` runs one in the foreground, on
Spark, and `shutdown` ends it. `bootstrap`, `load_events`, `waiting_requests` and
`recorded_requests` write what a take-over needs, and `read_ahead` reads for it; `handover` brings
partitions into a running stream and out of it; `process` runs a node as a child process. `cli` and
`replay` may import from here. `packaging` writes what a cluster gets: an archive for executors, and
what spark-submit starts; `needed` tells what a Python there lacks. Only `job` and `executors`
import Spark: the node knows the engine of its stream by the protocols in `engine`, and knows
nothing of members, workers or the command line.
"""
