"""A deterministic simulation of gateways: their topics, indexers, ACLs and clients, by a seed.

The world is that of `tests.trials.simulation`: its steps, clocks, processes, files and faults. What
runs in it is a gateway as `running_gateway` puts it together, from the bytes of a connection to the
commits of tables, in an event loop that is driven by simulated time (`loop`). Simulated are sockets
(`network`), threads, which are actors of the world, and whoever asks coordinators: requests of
groups are `tests.trials.simulation`'s. Clients encode with kafka-python (`connection`). `ledger`
holds every commit and every answer against the `promises`.
"""
