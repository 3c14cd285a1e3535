"""Cells of every Arrow type, with the values that programs get wrong."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa

# Bytes that are no UTF-8: a stray continuation, an overlong NUL, a lone surrogate of each kind, a
# code point past the last plane, a sequence that is cut off.
_NOT_UTF8 = (
    b"\x80",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xe2\x82",
)
# Texts that programs may misinterpret.
_TELLING = (
    b"",
    b" ",
    b"\x00",
    b"\n",
    b"null",
    b'"',
    b"\\",
    b"\\u0000",
    b'{"control":"unload"}',
    b"'; DROP TABLE requests; --",
    b"../../etc/passwd",
    b"%00%2F",
    b"-0",
    b"1e400",
    b"NaN",
    "\u202e\u2028\ufeff\ufffe".encode(),
    "a\u0301\u0301\u0301".encode(),
)
_PLANES = 17
_TO_CONTROLS = bytes(byte % 32 for byte in range(256))
_SURROGATES = range(0xD800, 0xE000)
_LONGEST_LIST = 3
# Values that get a request past its first checks, by the name of the field.
_LIKELY: dict[str, Sequence[Any]] = {
    "session_timeout_ms": (6_000, 10_000, 30_000, 1_800_000),
    "rebalance_timeout_ms": (1_000, 60_000),
    "generation_id": (-1, 0, 1, 2),
    "protocol_type": (b"consumer",),
    "protocol_name": (b"range",),
    "name": (b"t", b"range"),
    "member_id": (b"",),
    "partition_index": (0, 1, 2),
    "committed_offset": (0, 1),
    "api_version": (0, 0, 1, 2),
}


class Cells:
    """Makes cells; strings are bytes, which need not be UTF-8."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def cell(self, type_: pa.DataType, nulls: float, name: str = "") -> Any:
        """Return a value for a column or field of this type and name; `nulls` is a probability."""
        random = self._random
        if random.random() < nulls:
            return None
        if name in _LIKELY and random.random() < 0.7:
            return random.choice(_LIKELY[name])
        if pa.types.is_struct(type_):
            return {field.name: self.cell(field.type, nulls, field.name) for field in type_}
        if pa.types.is_list(type_):
            length = random.randrange(_LONGEST_LIST + 1)
            return [self.cell(type_.value_type, nulls, name) for _ in range(length)]
        if pa.types.is_boolean(type_):
            return random.random() < 0.5
        if pa.types.is_integer(type_) or pa.types.is_timestamp(type_):
            return self.integer(type_.bit_width)
        return self.text()

    def integer(self, bits: int) -> int:
        """Return a signed integer of `bits` bits, mostly a limit of some width."""
        random = self._random
        width = random.choice([width for width in (8, 16, 32, 64) if width <= bits])
        edges = (0, 1, -1, 2 ** (width - 1) - 1, -(2 ** (width - 1)))
        return random.choice((*edges, random.getrandbits(width - 1)))

    def text(self) -> bytes:
        """Return the bytes of a string cell."""
        random = self._random
        kind = random.randrange(6)
        if kind == 0:
            return random.choice(_TELLING)
        if kind == 1:
            return random.randbytes(random.choice((1, 7, 300))).translate(_TO_CONTROLS)
        if kind == 2:
            return self._of_a_plane().encode()
        if kind == 3:
            return b"x" + random.choice(_NOT_UTF8) + b"y"
        if kind == 4:
            return random.randbytes(random.choice((1, 3, 40)))
        return f"t-{random.randrange(100)}".encode()

    def _of_a_plane(self) -> str:
        first = self._random.randrange(_PLANES) << 16
        point = first + self._random.randrange(1 << 16)
        return "plane" if point in _SURROGATES else chr(point) * 3


def array_of(cells: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return the cells as a column of this type; strings may contain invalid UTF-8."""
    return _as_text(pa.array(cells, _as_binary(type_)), type_)


def _as_binary(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_string(type_):
        return pa.binary()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_as_binary(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_as_binary(type_.value_type)))
    return type_


def _as_text(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_string(type_):
        return array.view(pa.string())
    if pa.types.is_struct(type_):
        children = [_as_text(array.field(n), type_.field(n).type) for n in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())
    if pa.types.is_list(type_):
        items = _as_text(array.values, type_.value_type)
        return pa.ListArray.from_arrays(array.offsets, items, type=type_, mask=array.is_null())
    return array
