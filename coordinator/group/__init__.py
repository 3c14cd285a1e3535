"""The broker's side of the classic consumer-group protocol: Kafka's group coordinator.

`coordinator` decides one request, timer or load, and `batch` all that one group gets in one
micro-batch; each API, the states, the timers, the records and the stored state have a module of
their own. The stream imports `batch`, `control` and `partition`; the simulator, which takes single
steps, also `coordinator`, `group`, `step` and `timers`; the other modules are internal. Nothing
here knows how requests arrive, where records go, or what time it is.
"""
