"""A request and its responses: the same message to both sides, each with its own member ids.

kafka-python encodes the requests and decodes the responses, so the gateway's codec is compared too.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from group_coordinator.pipeline.gateway.apis import APIS
from group_coordinator.pipeline.replay.trace import Json
from tests.support import kafka_python

# By the name of the API.
HANDLERS = {handler.name: handler for handler in APIS.values()}
# The part of a member id that a coordinator draws.
_MADE = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
# Fields that differ between any two coordinators, or are for people.
_NOT_COMPARED = ("throttle_time_ms", "error_message")


class Name(NamedTuple):
    """A text that each side has its own of, such as the member id that it made."""

    ours: str
    theirs: str


def same(text: str) -> Name:
    """Return a text that is the same on both sides."""
    return Name(text, text)


class Draft(NamedTuple):
    """A request: Kafka's name of its API, its version, and its fields; texts may be `Name`s."""

    api: str
    version: int
    fields: Json

    def body(self, side: str) -> bytes:
        """Return the bytes of its body, with the names of a side."""
        return kafka_python.encode(self.message(side), self.version)

    def message(self, side: str) -> Any:
        """kafka-python's message, with the names of a side."""
        return _made(kafka_python.message(f"{self.api}Request"), self.fields, side)


def _made(kind: Any, value: Any, side: str) -> Any:
    if isinstance(value, Name):
        return getattr(value, side)
    if isinstance(value, list):
        return [_made(kind, each, side) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {name: getattr(field, "data_class", None) for name, field in kind.fields.items()}
    return kind(**{name: _made(inner[name], each, side) for name, each in value.items()})


class Names:
    """The map from the broker's member ids to this coordinator's.

    The id of a member without a response is not known. Only the beginning of such an id is
    compared.
    """

    def __init__(self) -> None:
        self._ours: dict[str, str] = {}
        self._known: set[str] = set()

    def learn(self, name: Name) -> None:
        """Both sides made an id for the same member."""
        self._ours.setdefault(name.theirs, name.ours)
        self._known.add(name.ours)

    def of(self, value: Any) -> Any:
        """Return a part of a response with this coordinator's member ids."""
        if isinstance(value, str):
            name = self._ours.get(value, value)
            return name if name in self._known else _MADE.sub("-?", name)
        if isinstance(value, dict):
            return {key: self.of(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.of(each) for each in value]
        return value


def decoded(draft: Draft, body: bytes) -> Json:
    """Return the fields of a response, without those that are not compared."""
    found, _ = kafka_python.decode(f"{draft.api}Response", draft.version, body)
    return dict(_plain(found.to_dict()))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if key not in _NOT_COMPARED}
        return {key: _plain(each) for key, each in kept.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.hex() if isinstance(value, bytes | memoryview) else value
