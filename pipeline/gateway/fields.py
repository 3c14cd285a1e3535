"""The fields of Kafka's messages, read and written one after the other.

For messages that are worth code of their own: kafka-python's classes serve the others. A message
has two forms. Up to a version of each API it has texts and lists with fixed-size lengths; from that
version on it is flexible (KIP-482): compact lengths, and tagged fields at the end of each struct.

Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class InvalidFrame(Exception):
    """Bytes that are no request of Kafka's protocol; the connection is to be closed."""


class Reader:
    """Reads the fields of `frame` from `at` on.

    All methods raise InvalidFrame, struct.error and IndexError where the frame ends too early.
    """

    __slots__ = ("at", "frame")

    def __init__(self, frame: bytes, at: int) -> None:
        self.frame = frame
        self.at = at

    def int8(self) -> int:
        """A number of one byte."""
        return int(self.numbers(_INT8)[0])

    def int32(self) -> int:
        """A number of four bytes."""
        at = self.at
        self.at = at + 4
        number: int = _INT32.unpack_from(self.frame, at)[0]
        return number

    def int64(self) -> int:
        """A number of eight bytes."""
        return int(self.numbers(_INT64)[0])

    def numbers(self, kinds: struct.Struct) -> tuple[Any, ...]:
        """Numbers that stand side by side, in one step."""
        at = self.at
        self.at = at + kinds.size
        return kinds.unpack_from(self.frame, at)

    def text(self) -> str:
        """A text that is not null."""
        found = self.nullable_text()
        if found is None:
            raise InvalidFrame("a text is null that must not be")
        return found

    def nullable_text(self) -> str | None:
        """A text, or null."""
        length = self._text_length()
        if length < 0:
            return None
        begin = self.at
        self.at = end = begin + length
        if end > len(self.frame):
            raise InvalidFrame("a text is longer than its frame")
        try:
            return self.frame[begin:end].decode()
        except UnicodeDecodeError:
            raise InvalidFrame("a text is not UTF-8") from None

    def items(self, item: Callable[[], T]) -> tuple[T, ...]:
        """A list that is not null; `item` reads each of its items."""
        found = self.nullable_items(item)
        if found is None:
            raise InvalidFrame("a list is null that must not be")
        return found

    def nullable_items(self, item: Callable[[], T]) -> tuple[T, ...] | None:
        """A list, or null; `item` reads each of its items."""
        count = self._count()
        if count < 0:
            return None
        # Every item has a byte at least: a false count would otherwise cost memory.
        if count > len(self.frame) - self.at:
            raise InvalidFrame(f"a list of {count} items is longer than its frame")
        return tuple([item() for _ in range(count)])

    def end_struct(self) -> None:
        """Pass over the tagged fields at the end of a struct, if this form has any."""

    def _text_length(self) -> int:
        at = self.at
        self.at = at + 2
        length: int = _INT16.unpack_from(self.frame, at)[0]
        return length

    def _count(self) -> int:
        return self.int32()


class FlexibleReader(Reader):
    """Reads the flexible form."""

    __slots__ = ()

    def end_struct(self) -> None:
        """Pass over the tagged fields at the end of a struct."""
        if self.frame[self.at] == 0:
            self.at += 1
            return
        for _ in range(self._unsigned_varint()):
            self._unsigned_varint()
            size = self._unsigned_varint()
            self.at += size
            if self.at > len(self.frame):
                raise InvalidFrame("a tagged field is longer than its frame")

    def _text_length(self) -> int:
        length = self.frame[self.at]
        if length < 0x80:
            self.at += 1
            return length - 1
        return self._unsigned_varint() - 1

    def _count(self) -> int:
        return self._unsigned_varint() - 1

    def _unsigned_varint(self) -> int:
        frame, at = self.frame, self.at
        value = frame[at]
        at += 1
        if value >= 0x80:
            value &= 0x7F
            for shift in (7, 14, 21, 28):
                byte = frame[at]
                at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
            else:
                raise InvalidFrame("a number has more than five bytes")
        self.at = at
        return value


class Writer:
    """Gathers the fields of a message; `bytes(writer)` is the message so far."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)

    def int16(self, number: int) -> None:
        """Write a number of two bytes."""
        self._parts.append(_INT16.pack(number))

    def int32(self, number: int) -> None:
        """Write a number of four bytes."""
        self._parts.append(_INT32.pack(number))

    def int64(self, number: int) -> None:
        """Write a number of eight bytes."""
        self._parts.append(_INT64.pack(number))

    def text(self, text: str | None) -> None:
        """Write a text, or null."""
        if text is None:
            self._parts.append(self._text_length(-1))
        else:
            encoded = text.encode()
            self._parts += (self._text_length(len(encoded)), encoded)

    def items(self, items: Iterable[T], write: Callable[[T], None]) -> None:
        """Write a list; `write` writes each of its items."""
        listed = list(items)
        self._parts.append(self._count(len(listed)))
        for each in listed:
            write(each)

    def end_struct(self) -> None:
        """Write that a struct has no tagged fields, if this form has any."""

    def _text_length(self, length: int) -> bytes:
        return _INT16.pack(length)

    def _count(self, count: int) -> bytes:
        return _INT32.pack(count)


class FlexibleWriter(Writer):
    """Writes the flexible form."""

    __slots__ = ()

    def end_struct(self) -> None:
        """Write that a struct has no tagged fields."""
        self._parts.append(b"\0")

    def _text_length(self, length: int) -> bytes:
        return _unsigned_varint(length + 1)

    def _count(self, count: int) -> bytes:
        return _unsigned_varint(count + 1)


def _unsigned_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
