"""Which node owns which offsets partition, which node is alive, and what operators change of it.

`decision_log` reads and appends decisions, `lease` tells which nodes are alive, `prepared` which
have prepared for what they are to get, `fencing` ends what an earlier start of a node may write,
`same_node` tells whether that start is alive, `hold` takes all partitions for a while, and
`partitions` is what operators ask. `node`, `records`, `gateway` and `cli` may import from here.
What a node decides is in `coordinator.ownership`; nothing here knows the stream, a group's state,
or Spark.
"""
