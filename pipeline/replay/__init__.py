"""Conversations held with a coordinator: recorded from real clients, or written as scenarios.

`simulator` runs a scenario through the state machine on a virtual clock, without Spark. `trace`
reads the recordings in the folder `traces`, `trace_replay` holds one with a live coordinator, and
`demo` is the command `demo`. Only the command and tests import from here; a replay sends requests
and reads tables, and knows nothing else of the coordinator that answers.
"""
