"""A deterministic simulation of the whole system: nodes, clients, clocks and faults by a seed.

It runs the product's packing, source, state machine, sink, ownership, handover, bootstrap and node,
on real Delta tables in a folder in memory. Simulated are Spark's micro-batches (`engine`), time
(`clocks`, `world_clock`), threads and processes (`world`), and the failures of files (`files`).
`checks` checks every commit against the `promises` of the coordinator. `simulation` is one run,
`trial` runs many. The same seed gives the same run, to the last response. The design follows
FoundationDB's simulation (Zhou et al., SIGMOD 2021) and TigerBeetle's.
"""
