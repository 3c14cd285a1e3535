"""A gateway: unmodified Kafka clients are served over TCP, as a broker serves them.

`server` listens, `connection` is one client's socket, `wire` turns frames into messages and back,
`apis` answers each API in a module of its own, `coordinator_link` carries group requests to the
`requests` table and their answers back, `brokers` says which gateways there are. The gateway
decides nothing of a group: the coordinator's job does. Only `cli` may import from here; nothing
here knows Spark, the job or a group's state.
"""
