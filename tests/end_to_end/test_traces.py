"""All recorded conversations with a real Kafka 4.1.0 broker, repeated with the simulator.

Each response must equal the broker's: error code, generation, protocol, leader, members,
assignment, offsets and state. A request that the broker never answered may be answered here. An
older join or sync of a member that repeats it gets 27, because each request has exactly one
response.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from group_coordinator.coordinator.config import parse_config
from group_coordinator.pipeline.replay.simulator import Simulator
from group_coordinator.pipeline.replay.trace import (
    TOPICS,
    MemberIds,
    load_trace,
    same_answer,
    trace_names,
)

BROKER_SETTINGS = ("group.initial.rebalance.delay.ms", "offsets.topic.num.partitions")


class Conversation:
    """A driver of the simulator."""

    def __init__(self, settings: dict[str, Any]) -> None:
        kept = {name: settings[name] for name in BROKER_SETTINGS}
        self.simulator = Simulator(parse_config(kept))
        self.answers: dict[str, Any] = {}
        self.say({"topics": TOPICS})

    def say(self, entry: dict[str, Any]) -> None:
        for output in self.simulator.feed(msgspec.json.encode(entry)):
            if "response" in output:
                answer = msgspec.json.decode(msgspec.json.encode(output["response"]))
                assert answer["request_id"] not in self.answers, "two answers to one request"
                self.answers[answer["request_id"]] = answer


@pytest.mark.parametrize("name", trace_names())
def test_the_broker_s_answers_are_ours(name: str) -> None:
    trace = load_trace(name)
    conversation = Conversation(trace.settings)
    ids = MemberIds()
    different = []
    for line in trace.lines:
        conversation.say({"advance_to_ms": max(line.at_ms, conversation.simulator.now)})
        if line.request is not None:
            conversation.say(ids.translate(line.request))
        elif line.response is not None:
            ours = conversation.answers.get(line.response["request_id"])
            if ours is not None:
                ids.learn(line.response, ours)
            if ours is None or not same_answer(line.response, ours, ids):
                different.append((line.at_ms, ids.translate(line.response), ours))
    assert not different
    assert len(trace.answers) > 10


def test_there_are_traces() -> None:
    assert len(trace_names()) == 15
