"""Ownership of offsets partitions by nodes: decisions, leases, fencing, and operators' commands.

* `decision_log` reads and appends decisions.
* `lease` determines which nodes are alive.
* `prepared` determines which partitions a node keeps until their next owner has prepared.
* `fencing` makes every later write of an earlier start of a node fail, and determines whether an
  earlier start of this node is alive.
* `hold` owns all partitions during a change by an operator.
* `partitions` moves partitions for operators; `listing` shows partitions and nodes to them.

`node`, `records`, `gateway` and `cli` may import from here. `coordinator.ownership` has the rules
of the decisions. This package does not depend on the stream, the state of groups, or Spark.
"""
