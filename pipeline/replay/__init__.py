"""Replays of recorded client traffic against a coordinator, and a simulator for scenarios.

`simulator` runs a scenario through the state machine on a virtual clock, without Spark. `trace`
reads the recordings in the folder `traces`; `trace_replay` replays one against a live coordinator,
by appending requests and reading responses. `demo` is the command `demo`. Only the commands and
tests import from here.
"""
