"""The broker's side of the classic consumer-group protocol: Kafka's group coordinator.

`coordinator` decides requests, timers and a load within a turn, and `batch` all that one group gets
in one micro-batch; each API, the states, the timers, the records and the stored state have a module
of their own. The stream imports `batch`, `control` and `partition`; the simulator, whose turns hold
a request or a timer each, also `coordinator`, `expiry`, `group`, `timers` and `turn`; the other
modules are internal. Nothing here knows how requests arrive, where records go, or what time it is.
"""
