"""Torture: live clients on a real root, with coordinators that are killed, paused and starved.

`run` is the trial. `load` has the clients, `nodes` the supervised coordinators and their processes,
`faults` the faults, and `promises` the checks. `commits` reads the tables' logs for the checks, and
`disk` is a separate disk that can be filled.
"""
