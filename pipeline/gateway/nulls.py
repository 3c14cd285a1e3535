"""Nulls where Kafka's message schemas allow none.

kafka-python reads a null in every text, list and struct. Kafka takes a message with one that must
not be null for no message: "non-nullable field ... was serialized as null".
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from group_coordinator.pipeline.gateway.fields import InvalidFrame

# Types that have no null: numbers, and ids of 16 bytes.
_NEVER_NULL = frozenset(
    {"bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid"}
)


class _Field(NamedTuple):
    """A field of a version that may be null on the wire, or has fields that may be."""

    name: str
    nullable: bool
    is_list: bool
    # Of the struct, or of each struct in the list; None for texts and bytes.
    fields: tuple[_Field, ...] | None


def check_nulls(message: Any, version: int) -> None:
    """Raise InvalidFrame for a message of kafka-python's with a null that its schema forbids."""
    kind: Any = type(message)
    _check(message, _of_message(kind, version))


def _check(value: Any, fields: tuple[_Field, ...]) -> None:
    for field in fields:
        found = getattr(value, field.name)
        if found is None:
            if not field.nullable:
                raise InvalidFrame(f"{field.name} is null, and must not be")
        elif field.is_list:
            for each in found:
                if each is None:
                    raise InvalidFrame(f"a null is in {field.name}")
                if field.fields is not None:
                    _check(each, field.fields)
        elif field.fields is not None:
            _check(found, field.fields)


@cache
def _of_message(message: Any, version: int) -> tuple[_Field, ...]:
    return _fields(message._struct, version)


def _fields(struct: Any, version: int) -> tuple[_Field, ...]:
    return tuple(
        _Field(
            field.name,
            field.nullable_for_version_q(version),
            field.is_array(),
            _fields(field, version) if field.is_struct() or field.is_struct_array() else None,
        )
        for field in struct.fields.values()
        # A tagged field that is absent has its default.
        if field.for_version_q(version)
        and not field.tagged_field_q(version)
        and field.type_str not in _NEVER_NULL
    )
