"""Benchmarks: each figure beside a floor that is measured in the same run.

A module named after a command measures (`answer`, `machine`, ...) and has its figures, their aims
and how they are shown (`report`); `everything` runs all of them and `page` writes what they found.
The others are loads (`paced`, `socket_fleet`), floors (`floor`, `start_floor`, `take_over_floor`),
and data to start with (`offsets_log`). Members that only make requests, the empty machine and
Kafka's broker are in `tests.support`.
"""
