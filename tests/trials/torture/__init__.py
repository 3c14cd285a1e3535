"""Torture: live clients on a real root, whose coordinators are killed, paused and starved.

`run` is the trial. `load` has the clients, `nodes` the supervised coordinators and the processes of
each, `faults` what is done to them, and `promises` what must hold all the same; `commits` reads the
tables' logs for it, `disk` is a root on a disk of its own that can be filled.
"""
