"""Benchmarks: each figure beside a floor that is measured in the same run.

A module named after a command measures (`answer`, `commit`, ...) and has its figures, their aims
and how they are shown (`report`); `everything` runs all of them and `page` writes what they found.
The others are loads (`fleet`, `paced`, `flood`, `socket_fleet`), floors (`empty`, `floor`,
`take_over_floor`), data to start with (`offsets_log`, `idle_log`), and Kafka's broker beside it
(`broker`, `wire`).

Only the command `bench` imports from here: the package is not in the wheel. It knows every other
package of `pipeline` but the command line.
"""
