"""Traces: recorded requests of real clients with a Kafka broker's answers, and their comparison.

A trace is JSON Lines: a header, then requests, the broker's answers and notes, each with its time
in ms since the start of the run. A coordinator generates member ids, so a replay maps recorded ids
to live ones. A broker returns topics, partitions and members in any order, so lists are compared as
sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Any

import msgspec
from msgspec import Struct

Json = dict[str, Any]

# Fields that differ between any two coordinators: the time, the text of errors, the address.
_NOT_COMPARED = ("responded_at", "error_message", "find_coordinator")
_ID_FIELDS = ("member_id", "leader")


class TraceLine(Struct):
    """One line of a trace: a request, a response or a note, `at_ms` after the start of the run."""

    at_ms: int
    request: Json | None = None
    response: Json | None = None
    note: Json | None = None


class Trace(Struct):
    """One recorded run and the settings of its broker; `what` describes the run."""

    name: str
    broker: str
    client: str
    what: str
    settings: Json
    lines: list[TraceLine]

    @property
    def answers(self) -> dict[str, Json]:
        """The broker's answers by request id; some requests have none."""
        found = (line.response for line in self.lines)
        return {response["request_id"]: response for response in found if response is not None}


# The topics of the recordings' broker, with their numbers of partitions. It answered error code 3
# (UNKNOWN_TOPIC_OR_PARTITION) for all others.
TOPICS: dict[str, int] = {"t4": 4, "t6": 6, "t24": 24}


def trace_names() -> list[str]:
    """Return the names of the recorded traces, sorted."""
    folder = resources.files("group_coordinator.pipeline.replay").joinpath("traces")
    names = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl"))


def load_trace(name: str) -> Trace:
    """Return a recorded trace; raises FileNotFoundError for an unknown name."""
    path = (
        resources.files("group_coordinator.pipeline.replay")
        .joinpath("traces")
        .joinpath(f"{name}.jsonl")
    )
    header, *lines = path.read_bytes().splitlines()
    decoded = [msgspec.json.decode(line, type=TraceLine) for line in lines]
    facts = msgspec.json.decode(header)
    return Trace(
        facts["trace"], facts["broker"], facts["client"], facts["what"], facts["settings"], decoded
    )


class MemberIds:
    """The map from recorded member ids to those of the live coordinator."""

    def __init__(self) -> None:
        self._live: dict[str, str] = {}

    def learn(self, recorded: Json, live: Json) -> None:
        """Map the recorded member id to the live one, by two answers to one JoinGroup request.

        Other answers, and answers without a member id, are ignored.
        """
        if recorded["api"] != "join_group" or live.get("join_group") is None:
            return
        old, new = recorded["join_group"]["member_id"], live["join_group"]["member_id"]
        if old and new:
            self._live.setdefault(old, new)

    def knows(self, member_id: str) -> bool:
        """Return whether the live id of this recorded member id is known."""
        return member_id in self._live

    def translate(self, value: Any) -> Any:
        """Return a recorded message with each known member id replaced by the live one."""
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
    """Yield every member id in a message."""
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
    """Return whether the live answer equals the broker's, apart from member ids.

    Lists are compared as sets; the fields in `_NOT_COMPARED` are ignored.
    """
    return bool(_comparable(ids.translate(recorded)) == _comparable(live))


def _comparable(answer: Json) -> Any:
    return canonical({k: v for k, v in answer.items() if k not in _NOT_COMPARED})


def canonical(value: Any) -> Any:
    """Return the value with every list sorted, so that lists compare as sets."""
    if isinstance(value, dict):
        return {key: canonical(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((canonical(one) for one in value), key=repr)
    return value
