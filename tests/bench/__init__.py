"""Benchmarks: each figure is compared with a floor that is measured in the same run.

A module named after a command (`answer`, `machine`, ...) measures, and defines its figures, their
aims and their table (`report`). `everything` runs all of them, and `page` renders the results. The
other modules are loads (`paced`, `socket_fleet`), floors (`floor`, `start_floor`,
`take_over_floor`), and initial data (`offsets_log`). Members that only send requests, the empty
machine and Kafka's broker are in `tests.support`.
"""
