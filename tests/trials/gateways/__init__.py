"""A deterministic simulation of gateways: their topics, indexers, ACLs and clients, by a seed.

It uses the world of `tests.trials.simulation`: its steps, clocks, processes, files and faults. A
gateway runs as `running_gateway` assembles it, from the bytes of a connection to the commits of
tables, in an event loop in simulated time (`loop`). Sockets (`network`), threads and the client of
coordinators are simulated. Threads are actors of the world. Requests of groups are omitted, because
`tests.trials.simulation` covers them. Clients encode with kafka-python (`connection`). `ledger`
checks every commit and every response against the `promises`.
"""
