"""Trials: what the coordinator's promises survive, in runs that are too long for a test.

Each package is one trial with one function to call; `__main__` has its verb, and a short run of it
is a test. `results` has the reports of long runs, and `page` renders README.md from
them and from `found`, the faults that the trials found.
"""
