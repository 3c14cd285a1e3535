"""Trials: what the coordinator's promises survive, in runs that are too long for a test.

Each module is one trial with one function to call; `pipeline.cli.trial` has its verb, and a short
run of it is a test. A trial may use every other package of `pipeline` except `cli`, `bench` and
`replay`. It is part of a clone, not of the wheel. `kept` keeps the reports of long runs in
`results`, and `page` renders README.md from them and from `found`, the faults that the trials
found.
"""
