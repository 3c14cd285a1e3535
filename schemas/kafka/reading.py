"""Readers of Kafka's messages: one function for each message and version, compiled at first use.

A reader decodes fields in place and creates the Structs of `structs`. Adjacent fixed-size fields,
and the length or the tag count after them, are unpacked in one step. The end of the message is
checked once, after the last field; until then a string that runs past it is truncated.

Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482 (flexible versions, tagged
fields); MessageDataGenerator.java (negative lengths are nulls).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from inspect import Parameter, signature
from typing import Any

from group_coordinator.schemas.kafka.schema import BYTES, FIXED, TEXT, UUID, Field, covers, schema
from group_coordinator.schemas.kafka.source import Compiler
from group_coordinator.schemas.kafka.structs import GroupRequest, attribute, struct_within
from group_coordinator.schemas.kafka.structs import struct as struct_of

Reader = Callable[[bytes, int], Any]


class InvalidMessage(ValueError):
    """Bytes that are not a message of this version; the text gives the reason."""


class InvalidField(Exception):
    """An invalid field; the reader converts it to InvalidMessage."""


@cache
def reader(name: str, version: int, strict: bool = False) -> Reader:
    """Return the function that decodes the message `name` in one version.

    The function takes bytes and the position of the message in them, and returns the message's
    Struct. If the message has a group id and its Struct does not, it returns a `GroupRequest`. It
    raises InvalidMessage. Bytes after the message are ignored, unless `strict`.
    """
    compiled: Reader = _ReaderCompiler(name, version, _NAMES).compile(strict)
    return compiled


def read_varint(frame: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint; return it and its end position. Raises InvalidField, IndexError."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise InvalidField("a number has more than five bytes")


def end_struct(frame: bytes, at: int) -> int:
    """Skip the tagged fields at `at`; return their end. Raises InvalidField, IndexError."""
    count, at = read_varint(frame, at)
    for _ in range(count):
        _, at = read_varint(frame, at)
        size, at = read_varint(frame, at)
        at += size
        if at > len(frame):
            raise InvalidField("a tagged field is longer than its frame")
    return at


def _is_null(name: str) -> None:
    raise InvalidField(f"{name} is null, and must not be")


def _check_count(name: str, count: int, left: int) -> None:
    # Each item has at least one byte, so a larger count is wrong; it must not allocate memory.
    if count > left:
        raise InvalidField(f"{name} has {count} items, which is longer than its frame")


_NAMES: dict[str, Any] = {
    "Unreadable": (InvalidField, struct.error, IndexError, UnicodeDecodeError, OverflowError),
    "InvalidMessage": InvalidMessage,
    "InvalidField": InvalidField,
    "check_count": _check_count,
    "end_struct": end_struct,
    "is_null": _is_null,
    "unpack_from": struct.unpack_from,
    "varint": read_varint,
}


class _ReaderCompiler(Compiler):
    def compile(self, strict: bool) -> Any:
        source, title = self._source, f"{self._message} version {self._version}"
        source.line("def read(frame, at):")
        source.depth = 1
        source.line("try:")
        source.depth = 2
        source.line("size = len(frame)")
        result = self._struct(schema(self._message).fields, struct_of(self._message))
        source.depth = 1
        source.line("except Unreadable as error:")
        source.line(f"    raise InvalidMessage(f'not {title}: {{error}}') from error")
        source.line("if at > size:")
        source.line(f"    raise InvalidMessage('not {title}: cut short')")
        if strict:
            source.line("if at < size:")
            source.line(f"    raise InvalidMessage(f'not {title}: {{size - at}} bytes too many')")
        source.line(f"return {result}")
        return source.function("read", title)

    # --- structs ----------------------------------------------------------------------------------

    def _struct(self, fields: tuple[Field, ...], kind: Any) -> str:
        """Generate code that reads a struct; return the expression that creates it."""
        found: dict[str, str] = {}
        tagged = []
        for field in fields:
            name = attribute(self._message, field)
            if covers(field.tagged_versions, self._version):
                tagged.append(field)
            elif covers(field.versions, self._version):
                found[name] = self._field(field, name)
        if self._flexible:
            self._tags(tagged, found)
        self._unpack()
        group_id = found.get("group_id")
        made = self._made(fields, kind, found)
        if group_id is None or "group_id" in kind.__struct_fields__:
            return made
        return f"{self._source.constant(GroupRequest)}({group_id}, {made})"

    def _made(self, fields: tuple[Field, ...], kind: Any, found: dict[str, str]) -> str:
        defaults = {attribute(self._message, each): each.default_value() for each in fields}
        arguments = []
        by_place = True
        for name, parameter in signature(kind).parameters.items():
            if name in found:
                value = found[name]
            else:
                # An absent field has the Struct's default, or else Kafka's.
                own = parameter.default
                value = self._source.constant(defaults[name] if own is Parameter.empty else own)
            by_place = by_place and parameter.kind is not Parameter.KEYWORD_ONLY
            arguments.append(value if by_place else f"{name}={value}")
        return f"{self._source.constant(kind)}({', '.join(arguments)})"

    def _tags(self, tagged: list[Field], found: dict[str, str]) -> None:
        source = self._source
        count = self._next("B")
        for field in tagged:
            name = attribute(self._message, field)
            found[name] = source.variable()
            source.line(f"{found[name]} = {source.constant(field.default_value())}")
        source.line(f"if {count}:")
        source.depth += 1
        if not tagged:
            source.line("at = end_struct(frame, at - 1)")
        else:
            tag, end = source.variable(), source.variable()
            source.line(f"{count}, at = varint(frame, at - 1)")
            source.line(f"for _ in range({count}):")
            source.depth += 1
            source.line(f"{tag}, at = varint(frame, at)")
            source.line(f"{end}, at = varint(frame, at)")
            source.line(f"{end} += at")
            for field in tagged:
                source.line(f"if {tag} == {field.tag}:")
                source.depth += 1
                name = attribute(self._message, field)
                value = self._field(field, name)
                self._unpack()
                source.line(f"{found[name]} = {value}")
                source.line(f"if at != {end}:")
                source.line(f"    raise InvalidField('{name} is not as long as its tag says')")
                source.depth -= 1
            source.line(f"at = {end}")
            source.line("if at > size:")
            source.line("    raise InvalidField('a tagged field is longer than its frame')")
            source.depth -= 1
        source.depth -= 1

    # --- fields -----------------------------------------------------------------------------------

    def _field(self, field: Field, name: str) -> str:
        """Generate code that reads a field; return the expression of its value."""
        nullable = covers(field.nullable_versions, self._version)
        if field.is_list:
            return self._list(field, name, nullable)
        if field.type in FIXED:
            return self._fixed(field.type)
        if field.fields:
            return self._nested(field, nullable)
        return self._text(field.type, name, nullable)

    def _fixed(self, kind: str) -> str:
        value = self._source.variable()
        self._run.append((value, FIXED[kind]))
        return value

    def _nested(self, field: Field, nullable: bool) -> str:
        kind = struct_within(self._message, field)
        if not nullable:
            return self._struct(field.fields, kind)
        source = self._source
        value, there = source.variable(), self._next("b")
        source.line(f"{value} = None")
        source.line(f"if {there} >= 0:")
        source.depth += 1
        source.line(f"{value} = {self._struct(field.fields, kind)}")
        source.depth -= 1
        return value

    def _text(self, kind: str, name: str, nullable: bool) -> str:
        source = self._source
        length = self._length("h" if kind == TEXT else "i")
        value = source.variable()
        found = f"frame[at:(at := at + {length})]"
        if kind == TEXT:
            found += ".decode()"
        elif kind != BYTES:
            # Records are not copied.
            found = f"memoryview(frame)[at:(at := at + {length})]"
        if nullable:
            source.line(f"{value} = None if {length} < 0 else {found}")
        else:
            self._refuse_null(length, name)
            source.line(f"{value} = {found}")
        return value

    def _list(self, field: Field, name: str, nullable: bool) -> str:
        source = self._source
        count = self._length("i")
        value = source.variable()
        if nullable:
            source.line(f"if {count} < 0:")
            source.line(f"    {value} = None")
            source.line("else:")
            source.depth += 1
        else:
            self._refuse_null(count, name)
        source.line(f"check_count('{name}', {count}, size - at)")
        self._items(field, name, value, count)
        if nullable:
            source.depth -= 1
        return value

    def _items(self, field: Field, name: str, value: str, count: str) -> None:
        source, kind = self._source, field.item_type
        if kind in FIXED and kind != UUID:
            source.line(f"{value} = unpack_from(f'>{{{count}}}{FIXED[kind]}', frame, at)")
            source.line(f"at += {count} * {struct.calcsize('>' + FIXED[kind])}")
            return
        source.line(f"{value} = []")
        source.line(f"for _ in range({count}):")
        source.depth += 1
        if field.fields:
            item = self._struct(field.fields, struct_within(self._message, field))
        elif kind in FIXED:
            item = self._fixed(kind)
        else:
            item = self._text(kind, f"an item of {name}", nullable=False)
        self._unpack()
        source.line(f"{value}.append({item})")
        source.depth -= 1
        source.line(f"{value} = tuple({value})")

    # --- lengths and numbers ----------------------------------------------------------------------

    def _refuse_null(self, length: str, name: str) -> None:
        self._source.line(f"if {length} < 0:")
        self._source.line(f"    is_null('{name}')")

    def _length(self, kind: str) -> str:
        """Generate code that reads a length; a negative one means null."""
        if not self._flexible:
            return self._next(kind)
        length = self._next("B")
        self._source.line(f"if {length} > 127:")
        self._source.line(f"    {length}, at = varint(frame, at - 1)")
        self._source.line(f"{length} -= 1")
        return length

    def _next(self, kind: str) -> str:
        """Unpack the pending fields and one number after them; return its variable."""
        value = self._source.variable()
        self._run.append((value, kind))
        self._unpack()
        return value

    def _unpack(self) -> None:
        if not self._run:
            return
        variables = ", ".join(name for name, _ in self._run)
        kinds = struct.Struct(">" + "".join(kind for _, kind in self._run))
        if kinds.format == ">B":
            self._source.line(f"{variables} = frame[at]")
        else:
            unpack = self._source.constant(_unpacker(kinds.format))
            self._source.line(f"{variables}, = {unpack}(frame, at)")
        self._source.line(f"at += {kinds.size}")
        self._run.clear()


@cache
def _unpacker(kinds: str) -> Callable[..., tuple[Any, ...]]:
    return struct.Struct(kinds).unpack_from
