"""The texts of a coordinator's job: names of partitions, and the cause of a failed query."""

from __future__ import annotations

from group_coordinator.pipeline.node.query import named
from group_coordinator.pipeline.stream.spark_engine import root_cause


def test_partitions_are_named_as_ranges():
    assert named([7, 1, 0, 2, 9]) == "0-2, 7, 9"


def test_the_innermost_error_is_the_cause():
    text = "[STREAM_FAILED] Query x\n  File y, line 3\nKeyError: 'z'\n\n=== Streaming Query ==="
    assert root_cause(text) == "KeyError: 'z'"
    assert root_cause("something else\nfurther") == "something else"
