"""The broker's side of the classic consumer-group protocol: Kafka's group coordinator.

`coordinator` decides requests, timers and loads; `batch` processes one group in one micro-batch.
Each API, the states, the timers, the records and the stored state have a module each. The stream
imports `batch`, `control`, `machine` and `partition`; the simulator, which makes one `Decision` per
request or timer, also imports `coordinator`, `offset_deletion`, `classic_group`, `timers` and
`decision`.
"""
