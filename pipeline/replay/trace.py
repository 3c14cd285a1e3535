"""Recorded conversations of real clients with a real Kafka broker, and how to hold them again.

A trace is JSON Lines: a header, then requests, the broker's answers and notes, each with the ms
since the run began. Member ids are made by whoever answers, so a replay maps the recorded ids to
the ones it is given. What comes out of hash maps (topics, partitions, members) is compared as sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Any

import msgspec
from msgspec import Struct

Json = dict[str, Any]

# What a replay cannot equal, or what is ours alone: the clock, our words for people, our address.
_NOT_COMPARED = ("responded_at", "error_message", "find_coordinator")
_ID_FIELDS = ("member_id", "leader")


class TraceLine(Struct):
    """One line of a trace: exactly one of the three, and when (ms since the run began)."""

    at_ms: int
    request: Json | None = None
    response: Json | None = None
    note: Json | None = None


class Trace(Struct):
    """One recorded run, with the broker's settings in force."""

    name: str
    broker: str
    client: str
    what: str
    settings: Json
    lines: list[TraceLine]

    @property
    def answers(self) -> dict[str, Json]:
        """The broker's answer to each request id that got one."""
        found = (line.response for line in self.lines)
        return {response["request_id"]: response for response in found if response is not None}


# The topics of the recording broker: it answered for no others.
TOPICS: dict[str, int] = {"t4": 4, "t6": 6, "t24": 24}


def trace_names() -> list[str]:
    """The names of the recorded traces, sorted."""
    folder = resources.files("pipeline.replay").joinpath("traces")
    names = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl"))


def load_trace(name: str) -> Trace:
    """Read one recorded trace; raises FileNotFoundError for a name that is none."""
    path = resources.files("pipeline.replay").joinpath("traces").joinpath(f"{name}.jsonl")
    header, *lines = path.read_bytes().splitlines()
    decoded = [msgspec.json.decode(line, type=TraceLine) for line in lines]
    facts = msgspec.json.decode(header)
    return Trace(
        facts["trace"], facts["broker"], facts["client"], facts["what"], facts["settings"], decoded
    )


class MemberIds:
    """The recorded member ids and what they are called in the replay."""

    def __init__(self) -> None:
        self._live: dict[str, str] = {}

    def learn(self, recorded: Json, live: Json) -> None:
        """Two answers to one join tell which id stands for which."""
        if recorded["api"] != "join_group" or live.get("join_group") is None:
            return
        old, new = recorded["join_group"]["member_id"], live["join_group"]["member_id"]
        if old and new:
            self._live.setdefault(old, new)

    def knows(self, member_id: str) -> bool:
        """Whether the id needs no translation that is still to be learned."""
        return member_id in self._live

    def translate(self, value: Any) -> Any:
        """A recorded message with every member id as the replay calls it."""
        if isinstance(value, dict):
            return {key: self._field(key, one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.translate(one) for one in value]
        return value

    def _field(self, key: str, value: Any) -> Any:
        if key in _ID_FIELDS and isinstance(value, str):
            return self._live.get(value, value)
        return self.translate(value)


def mentioned_ids(value: Any) -> Iterator[str]:
    """Every member id in a message."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key in _ID_FIELDS and isinstance(one, str):
                if one:
                    yield one
            else:
                yield from mentioned_ids(one)
    elif isinstance(value, list):
        for one in value:
            yield from mentioned_ids(one)


def same_answer(recorded: Json, live: Json, ids: MemberIds) -> bool:
    """Whether the replay's answer is the broker's, but for the names of members."""
    return bool(_comparable(ids.translate(recorded)) == _comparable(live))


def _comparable(answer: Json) -> Any:
    return _canonical({k: v for k, v in answer.items() if k not in _NOT_COMPARED})


def _canonical(value: Any) -> Any:
    """The value with every list in one order, so that sets compare as sets."""
    if isinstance(value, dict):
        return {key: _canonical(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((_canonical(one) for one in value), key=repr)
    return value
