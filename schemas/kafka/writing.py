"""Writers of Kafka's messages: one function for each message and version, compiled at first use.

A writer encodes an object with the attributes of the Structs in `structs` into parts, and joins
them once, so that records are copied only once. Adjacent fixed-size fields, and the length or the
tag count after them, are packed in one step. Fields that the version lacks are left out.

Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482 (flexible versions, tagged
fields).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from group_coordinator.schemas.kafka.schema import FIXED, TEXT, UUID, Field, covers, schema
from group_coordinator.schemas.kafka.source import Compiler
from group_coordinator.schemas.kafka.structs import attribute

Writer = Callable[[Any], bytes]


class NotEncodable(ValueError):
    """Values that the message cannot encode; the text gives the reason."""


@cache
def writer(name: str, version: int) -> Writer:
    """Return the function that encodes the message `name` in one version.

    The function takes any object with the message's attributes and returns bytes. It raises
    NotEncodable for a number or string that is too large, and a forbidden null.
    """
    compiled: Writer = _WriterCompiler(name, version).compile()
    return compiled


def varint(number: int) -> bytes:
    """Encode an unsigned varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_NAMES: dict[str, Any] = {
    "FieldErrors": (struct.error, AttributeError, TypeError, UnicodeEncodeError),
    "NotEncodable": NotEncodable,
    "pack": struct.pack,
    "varint": varint,
}


class _WriterCompiler(Compiler):
    def __init__(self, message: str, version: int) -> None:
        super().__init__(message, version, _NAMES)
        self._parts = "parts"

    def compile(self) -> Any:
        source = self._source
        source.line("def write(message):")
        source.depth = 1
        source.line("parts = []")
        source.line("try:")
        source.depth = 2
        self._struct(schema(self._message).fields, "message")
        source.line("return b''.join(parts)")
        source.depth = 1
        source.line("except FieldErrors as error:")
        source.line(
            f"    raise NotEncodable(f'no {self._message} can hold this: {{error}}') from error"
        )
        return source.function("write", f"{self._message} version {self._version}")

    # --- structs ----------------------------------------------------------------------------------

    def _struct(self, fields: tuple[Field, ...], value: str) -> None:
        """Generate code that writes a struct, including its tagged fields."""
        tagged = []
        for field in fields:
            if covers(field.tagged_versions, self._version):
                tagged.append(field)
            elif covers(field.versions, self._version):
                self._field(field, f"{value}.{attribute(self._message, field)}")
        if tagged:
            self._tags(tagged, value)
        elif self._flexible:
            self._run.append(("0", "B"))
        self._pack()

    def _tags(self, tagged: list[Field], value: str) -> None:
        """Generate code that writes the tagged fields that differ from their defaults."""
        source, outer = self._source, self._parts
        tags = source.variable()
        source.line(f"{tags} = []")
        self._pack()
        for field in sorted(tagged, key=lambda each: each.tag):
            found = source.variable()
            source.line(f"{found} = {value}.{attribute(self._message, field)}")
            default = field.default_value()
            # An empty list may be a list or a tuple.
            same = f"not {found}" if field.is_list and default == () else f"{found} == {default!r}"
            source.line(f"if not ({same}):")
            source.depth += 1
            self._parts = source.variable()
            source.line(f"{self._parts} = []")
            self._field(field, found)
            self._pack()
            source.line(f"{found} = b''.join({self._parts})")
            tag = varint(field.tag)
            source.line(f"{tags}.append({tag!r} + varint(len({found})) + {found})")
            source.depth -= 1
        self._parts = outer
        self._add(f"varint(len({tags})) + b''.join({tags})")

    # --- fields -----------------------------------------------------------------------------------

    def _field(self, field: Field, value: str) -> None:
        nullable = covers(field.nullable_versions, self._version)
        if field.is_list:
            self._list(field, value, nullable)
        elif field.type in FIXED:
            self._run.append((value, FIXED[field.type]))
        elif field.fields:
            self._nested(field, value, nullable)
        else:
            self._text(field.type, value, nullable)

    def _nested(self, field: Field, value: str, nullable: bool) -> None:
        if not nullable:
            self._struct(field.fields, value)
            return
        source, found = self._source, self._held(value)
        self._run.append((f"-1 if {found} is None else 1", "b"))
        self._pack()
        source.line(f"if {found} is not None:")
        source.depth += 1
        self._struct(field.fields, found)
        source.depth -= 1

    def _text(self, kind: str, value: str, nullable: bool) -> None:
        encode = ".encode()" if kind == TEXT else ""
        found, length = self._source.variable(), self._source.variable()
        if nullable:
            held = self._held(value)
            self._source.line(f"if {held} is None:")
            self._source.line(f"    {found}, {length} = b'', -1")
            self._source.line("else:")
            self._source.line(f"    {found} = {held}{encode}")
            self._source.line(f"    {length} = len({found})")
        else:
            self._source.line(f"{found} = {value}{encode}")
            self._source.line(f"{length} = len({found})")
        self._length(length, "h" if kind == TEXT else "i")
        self._add(found)

    def _list(self, field: Field, value: str, nullable: bool) -> None:
        source, kind = self._source, field.item_type
        items, count = self._held(value), source.variable()
        source.line(
            f"{count} = -1 if {items} is None else len({items})"
            if nullable
            else f"{count} = len({items})"
        )
        self._length(count, "i")
        if nullable:
            source.line(f"if {items} is not None:")
            source.depth += 1
        if kind in FIXED and kind != UUID:
            self._add(f"pack(f'>{{{count}}}{FIXED[kind]}', *{items})")
        else:
            self._items(field, items)
        if nullable:
            source.depth -= 1

    def _items(self, field: Field, items: str) -> None:
        source, kind, item = self._source, field.item_type, self._source.variable()
        source.line(f"for {item} in {items}:")
        begin = len(source.lines)
        source.depth += 1
        if field.fields:
            self._struct(field.fields, item)
        elif kind == UUID:
            self._add(item)
        else:
            self._text(kind, item, nullable=False)
        source.depth -= 1
        mark = f"{self._parts}.append("
        if len(source.lines) == begin + 1 and source.lines[begin].strip().startswith(mark):
            # Items of one part each need no loop.
            part = source.lines.pop().strip().removeprefix(mark)[:-1]
            source.lines.pop()
            source.line(f"{self._parts} += [{part} for {item} in {items}]")

    # --- lengths and numbers ----------------------------------------------------------------------

    def _held(self, value: str) -> str:
        """Assign a value to a variable, unless it is one; return its name."""
        if value.isidentifier():
            return value
        found = self._source.variable()
        self._source.line(f"{found} = {value}")
        return found

    def _length(self, length: str, kind: str) -> None:
        """Pack a length after the pending fields; a negative one means null."""
        if not self._flexible:
            self._run.append((length, kind))
            self._pack()
            return
        run, self._run = self._run, []
        short = self._packed([*run, (f"{length} + 1", "B")])
        long = f"varint({length} + 1)"
        if run:
            long = f"{self._packed(run)} + {long}"
        self._add(f"{short} if {length} < 127 else {long}")

    def _pack(self) -> None:
        if self._run:
            run, self._run = self._run, []
            self._add("b'\\0'" if run == [("0", "B")] else self._packed(run))

    def _packed(self, run: list[tuple[str, str]]) -> str:
        values, kinds = zip(*run, strict=True)
        pack = self._source.constant(_packer(">" + "".join(kinds)))
        return f"{pack}({', '.join(values)})"

    def _add(self, part: str) -> None:
        self._source.line(f"{self._parts}.append({part})")


@cache
def _packer(kinds: str) -> Callable[..., bytes]:
    return struct.Struct(kinds).pack
