"""The gateway: a server that speaks Kafka's protocol to unmodified clients, as a broker does.

`server` listens, `connection` is one client's socket, `wire` decodes and encodes frames, and `apis`
has one module for each API. `coordinator_link` sends group requests to the `requests` table and
returns their responses. `brokers` has the live gateways. The coordinator decides all requests of
groups. Only `cli` may import from here, and nothing here knows Spark, the job or a group's state.
"""
