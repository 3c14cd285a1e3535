"""The gateway: a server that speaks Kafka's protocol to unmodified clients, as a broker does.

`server` listens, `connection` is one client's socket, `wire` decodes and encodes frames, and `apis`
answers the requests of each API. `coordinator_link` passes group requests to the coordinator
through the tables. `brokers` lists the live gateways. Only `cli` may import this package.
"""
