"""A coordinator node: it takes offsets partitions over, decides for their groups, hands them over.

1. `job.run` runs a node in the foreground, on Spark, until `stop_signals` stop it; `coordinating`
   is the part inside the Spark session. `process` runs a node as a child process.
2. `node.CoordinatorNode` carries out the decisions about partitions.
3. `query.NodeQuery` begins the node's query and changes its partitions. `resumption` decides which
   streaming checkpoint the query continues.
4. `bootstrap` writes the events that load or unload groups, from `load_events`, `answered_requests`
   and `waiting_requests`. `read_ahead` reads for it before a claim.
5. `table_scan` reads the tables.

`packaging` writes the archive for a cluster's executors and the script for spark-submit; `needed`
finds the packages that a Python lacks. Only `job`, `coordinating` and `stop_signals` handle a Spark
session: the node uses its stream through the protocols in `stream_engine`.
"""
