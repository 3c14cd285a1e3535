"""A coordinator node: takes offsets partitions over, decides for their groups, hands them over.

The modules, from the start of a process to the rows that it reads:

1. `job.run` runs a node in the foreground, on Spark, until `stop_signals` stop it. `coordinating`
   is the part of it that runs in the Spark session. `process` runs a node as a child process.
2. `node.CoordinatorNode` is one node. It carries out the decisions about partitions.
3. `query.NodeQuery` is the query of one start of the node: it begins and changes the query.
   `resumption` decides which streaming checkpoint the query continues.
4. `bootstrap` writes the events of a take-over: of `load_events`, `answered_requests` and
   `waiting_requests`. It adds partitions to a running stream and removes them. `read_ahead` reads
   for it before a claim.
5. `duckdb_view` and `table_scan` read the tables.

`packaging` writes the archive for the executors of a cluster, and the script that spark-submit
starts; `needed` finds the packages that a Python lacks.

`cli` and `replay` may import from here. Only `job`, `coordinating` and `stop_signals` handle a
Spark session: the node uses its stream through the protocols in `stream_engine`. The node does not
depend on members, workers or the command line.
"""
