"""Ownership of offsets partitions by nodes: decisions, leases, fencing, and operators' commands.

* `decision_log` reads and appends decisions, and says which partitions wait for their next owner.
* `lease` determines which nodes are alive.
* `fencing` makes every later write of a node's earlier processes fail, and finds out whether one is
  alive.
* `hold` owns all partitions during a change by an operator.
* `partitions` shows partitions and nodes to operators, and moves partitions.

`coordinator.ownership` has the rules of the decisions.
"""
