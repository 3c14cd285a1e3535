"""Kafka's message schemas: the fields of each message in each version.

Source: `clients/src/main/resources/common/message/README.md` in Apache Kafka.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

import msgspec
from msgspec import Struct

# The zero UUID, 16 bytes.
NO_UUID = bytes(16)
LIST = "[]"
TEXT, BYTES, RECORDS, UUID, BOOL = "string", "bytes", "records", "uuid", "bool"
# The fixed-size types, with their `struct` formats.
FIXED = {
    BOOL: "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    UUID: "16s",
}
_TO_LAST = 2**15


class Field(Struct, frozen=True, rename="camel"):
    """A field of a message or of a struct inside it. `tag` applies to `tagged_versions` only."""

    name: str
    type: str
    versions: str
    fields: tuple[Field, ...] = ()
    nullable_versions: str = "none"
    tagged_versions: str = "none"
    tag: int = -1
    default: str | int | bool = ""

    @property
    def is_list(self) -> bool:
        """Whether the field is a list of `item_type`."""
        return self.type.startswith(LIST)

    @property
    def item_type(self) -> str:
        """The field's type without the list prefix."""
        return self.type.removeprefix(LIST)

    def default_value(self) -> Any:
        """Return the value of an absent field. An absent struct is None."""
        text = str(self.default).lower() if self.type == BOOL else str(self.default)
        if text == "null":
            return None
        if self.is_list:
            return ()
        if self.type in (TEXT, BYTES, RECORDS):
            return text if self.type == TEXT else b""
        if self.type == UUID:
            return NO_UUID
        if self.type == BOOL:
            return text == "true"
        return int(text or "0", 0) if self.type in FIXED else None


class Schema(Struct, frozen=True, rename="camel"):
    """A message: a request, a response, a record's key or value, or data between members."""

    name: str
    valid_versions: str
    flexible_versions: str
    fields: tuple[Field, ...]
    api_key: int = -1

    def is_valid(self, version: int) -> bool:
        """Whether the message has this version."""
        return covers(self.valid_versions, version)

    def is_flexible(self, version: int) -> bool:
        """Whether this version has tagged fields and compact strings and lists (KIP-482)."""
        return covers(self.flexible_versions, version)


@cache
def schema(name: str) -> Schema:
    """Return a message's schema, from this package's file `<name>.json`."""
    found = (resources.files(__package__) / f"{name}.json").read_bytes()
    return msgspec.json.decode(found, type=Schema)


def covers(versions: str, version: int) -> bool:
    """Whether a version range such as "3+", "0-2", "1" or "none" contains a version."""
    if versions == "none":
        return False
    first, dash, last = versions.partition("-")
    if first.endswith("+"):
        return int(first[:-1]) <= version < _TO_LAST
    return int(first) <= version <= int(last if dash else first)


def underscored(name: str) -> str:
    """Convert a name from Kafka's CamelCase to snake_case."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
