"""Replays of recorded client traffic against a coordinator, and a simulator for scenarios.

`simulator` runs a scenario through the state machine on a virtual clock, without Spark. `trace`
reads the recordings in the folder `traces`, and `trace_replay` replays one against a live
coordinator. `demo` implements the command `demo`. Only the commands and tests import from here. A
replay uses only the tables of the coordinator: it appends requests and reads the responses.
"""
