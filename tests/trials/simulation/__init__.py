"""A deterministic simulation of the whole system: nodes, clients, clocks and faults by a seed.

What runs in it is the real code of packing, source, machine, sink, ownership, handover, bootstrap
and node, on real Delta tables in a folder in memory. Simulated are Spark's micro-batches
(`engine`), time (`clocks`, `world_clock`), threads and processes (`world`), and the failures of
files (`files`). `checks` holds every commit against the `promises` of the
coordinator. One run is `simulation`, many are `trial`. The same seed gives the same run, to the
last answer. After FoundationDB's simulation (Zhou et al., SIGMOD 2021) and TigerBeetle's.
"""
