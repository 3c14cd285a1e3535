"""A coordinator node: taking partitions over, deciding for them, handing them on.

`job` runs a node on Spark, and only it imports Spark here: the node's own code knows the engine of
its stream by `engine`'s protocols.
"""
