"""Parquet files of requests that no client of this project writes, and the responses due for each.

A file's rows have the contract's types with any bytes, or some columns are missing, have other
types, or are not part of the contract.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from msgspec import Struct

from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.tables import REQUESTS
from tests.trials.malformed.cells import Cells, array_of

# Requests that may wait for the other members of their group.
MAY_WAIT = {"join_group", "sync_group"}
# A request as its coordinator knows it: its group's id and its own.
Key = tuple[str, str]

_HEADERS = tuple(name for name in REQUESTS.schema.names if name not in DECIDED)
_GROUPS = 2_000
_NEST = 40
# How many bodies of an api are known, and which share of the requests has a new one.
_BODIES = 200
_NEW_BODIES = 0.2
# Which share of the requests come from a member.
_OF_MEMBERS = 0.3

# The types in which other engines write a text; such a column is read as the contract's.
_TEXTS: dict[str, pa.DataType] = {
    "large text": pa.large_string(),
    "text view": pa.string_view(),
    "binary": pa.binary(),
    "large binary": pa.large_binary(),
    "dictionary": pa.dictionary(pa.int32(), pa.binary()),
}
# Columns of other types; each is given its number of rows.
_OTHERS: dict[str, Callable[[int], pa.Array]] = {
    "int8": lambda n: pa.array([-1] * n, pa.int8()),
    "uint64": lambda n: pa.array([2**64 - 1] * n, pa.uint64()),
    "double": lambda n: _repeated([math.nan, math.inf, -0.0, 1e308], n, pa.float64()),
    "float16": lambda n: pa.array([None] * n, pa.float16()),
    "bool": lambda n: pa.array([True] * n, pa.bool_()),
    "decimal": lambda n: pa.array([Decimal("9" * 38)] * n, pa.decimal128(38, 0)),
    "date": lambda n: _repeated([date(1, 1, 1), date(9999, 12, 31)], n, pa.date32()),
    "past dates": lambda n: _repeated([-(2**31), 2**31 - 1], n, pa.int32()).view(pa.date32()),
    "time": lambda n: pa.array([time(23, 59)] * n, pa.time64("us")),
    "millis": lambda n: _repeated([2**63 - 1, -(2**63)], n, pa.timestamp("ms", "UTC")),
    "nanos": lambda n: _repeated([2**63 - 1, -(2**63)], n, pa.timestamp("ns", "UTC")),
    "zone": lambda n: pa.array([0] * n, pa.timestamp("us", "Asia/Kathmandu")),
    "duration": lambda n: pa.array([timedelta(days=1)] * n, pa.duration("us")),
    "map": lambda n: pa.array([[("k", 1)]] * n, pa.map_(pa.string(), pa.int64())),
    "list": lambda n: pa.array([["x", None]] * n, pa.list_(pa.string())),
    "large list": lambda n: pa.array([[b"\xff"]] * n, pa.large_list(pa.binary())),
    "fixed list": lambda n: pa.array([[1, 2]] * n, pa.list_(pa.int32(), 2)),
    "struct": lambda n: pa.array([{"a": {"b": [1]}}] * n),
    "list of structs": lambda n: pa.array([[{"a": 1}, None]] * n),
    "deep": lambda n: pa.array([_deep_value(_NEST)] * n, _deep_type(_NEST)),
    "nulls": pa.nulls,
}


class Owed(Struct):
    """The responses that are due for a file.

    `answers` maps the id of each request with one response to its API. `rejected` rows cannot be
    answered. `repeats` counts rows that repeat a request of the file and get no response.
    """

    answers: dict[Key, str]
    rejected: int = 0
    repeats: int = 0


class MalformedFiles:
    """Makes files from a source of randomness; ids of requests are unique over all of them.

    `members` are groups and member ids that the coordinator gave out; requests use them too.
    """

    def __init__(self, random: Random) -> None:
        self.members: list[Key] = []
        self._cells = Cells(random)
        self._random = random
        self._groups = [self._group_id(number) for number in range(_GROUPS)]
        self._bodies: dict[str, deque[Any]] = {}
        self._made = 0

    def file(self, rows: int) -> tuple[pa.Table, Owed]:
        """Return a file of `rows` rows, and the responses due for it."""
        columns, owed = self._contract_rows(rows)
        random = self._random
        kind = random.random()
        if kind < 0.15:
            for name in random.sample(sorted(columns), random.randrange(1, len(columns))):
                owed = _without(columns, name, owed, rows)
        elif kind < 0.25:
            for name in ("control", "", "Request_Id", "heartbeat.member_id", "\x00"):
                columns[name] = _OTHERS[random.choice(sorted(_OTHERS))](rows)
        elif kind < 0.45:
            for name in random.sample(sorted(columns), random.randrange(1, 4)):
                owed = _other(columns, name, owed, rows, random.choice(sorted(_OTHERS)))
        elif kind < 0.55:
            for name in _HEADERS:
                if pa.types.is_string(columns[name].type):
                    columns[name] = _as_other_text(columns[name], random.choice(sorted(_TEXTS)))
        elif kind < 0.65:
            self._change_bodies(columns, rows)
        return pa.table(list(columns.values()), names=list(columns)), owed

    # --- rows of the contract's types -----------------------------------------------------------

    def _group_id(self, number: int) -> bytes:
        return self._cells.text()[:200] + b"-%d" % number

    def _contract_rows(self, rows: int) -> tuple[dict[str, pa.Array], Owed]:
        cells: dict[str, list[Any]] = {name: [] for name in REQUESTS.schema.names}
        owed = Owed({})
        before: dict[str, Any] = {}
        for _ in range(rows):
            row = self._row()
            if before and self._random.random() < 0.01:
                row["request_id"], row["group_id"] = before["request_id"], before["group_id"]
            before = row
            for name, column in cells.items():
                column.append(row.get(name))
            _owe(owed, row)
        columns = {field.name: array_of(cells[field.name], field.type) for field in REQUESTS.schema}
        return columns, owed

    def _row(self) -> dict[str, Any]:
        random, cells = self._random, self._cells
        nulls = random.choice((0.0, 0.02, 0.4))
        row = {name: cells.cell(REQUESTS.schema.field(name).type, nulls, name) for name in _HEADERS}
        self._made += 1
        if row["request_id"] is not None:
            row["request_id"] = row["request_id"][:200] + b"-%d" % self._made
        row["group_id"] = None if random.random() < nulls else random.choice(self._groups)
        if self._made == 1:
            # An id like any other, but only once.
            row["request_id"], row["group_id"] = b"", b"empty"
        api = random.choice(list(DECIDED))
        if random.random() < 0.9:
            row["api"] = api.encode()
        for name in (api, random.choice(list(DECIDED))) if random.random() < 0.1 else (api,):
            row[name] = self._body(name, nulls)
        if self.members and random.random() < _OF_MEMBERS:
            group_id, member_id = random.choice(self.members)
            row["group_id"] = group_id.encode()
            for name in DECIDED:
                if row.get(name) and "member_id" in row[name]:
                    row[name] = {**row[name], "member_id": member_id.encode()}
        return row

    def _body(self, api: str, nulls: float) -> Any:
        """Return a new body, or a recent one, because making one takes 0.2 ms."""
        known = self._bodies.setdefault(api, deque(maxlen=_BODIES))
        if len(known) < _BODIES or self._random.random() < _NEW_BODIES:
            known.append(self._cells.cell(REQUESTS.schema.field(api).type, nulls, api))
            return known[-1]
        return self._random.choice(known)

    # --- bodies of other types ------------------------------------------------------------------

    def _change_bodies(self, columns: dict[str, pa.Array], rows: int) -> None:
        """Give some bodies a field of another type, one more field, or one less."""
        random = self._random
        for name in random.sample(list(DECIDED), 3):
            type_ = REQUESTS.schema.field(name).type
            fields = {field.name: columns[name].field(i) for i, field in enumerate(type_)}
            if len(fields) > 1 and random.random() < 0.5:
                del fields[random.choice(sorted(fields))]
            changed = random.choice([*sorted(fields), "added"])
            is_null = columns[name].is_null()
            # pyarrow before 25 does not write a list that has items below a null.
            kept = [None if null else row for row, null in enumerate(is_null.to_pylist())]
            others = _OTHERS[random.choice(sorted(_OTHERS))](rows)
            fields[changed] = others.take(pa.array(kept, pa.int64()))
            columns[name] = pa.StructArray.from_arrays(
                list(fields.values()), list(fields), mask=is_null
            )


def _owe(owed: Owed, row: dict[str, Any]) -> None:
    if row["request_id"] is None or row["group_id"] is None:
        owed.rejected += 1
        return
    key = (as_read(row["group_id"]), as_read(row["request_id"]))
    api = as_read(row["api"] or b"")
    if key in owed.answers:
        owed.repeats += 1
        # Either of the two requests may be the one that is decided.
        owed.answers[key] = max(owed.answers[key], api, key=lambda each: each in MAY_WAIT)
    else:
        owed.answers[key] = api


def as_read(text: bytes) -> str:
    """Return a string cell as the coordinator decodes it."""
    return text.decode("utf-8", "replace")


def _without(columns: dict[str, pa.Array], name: str, owed: Owed, rows: int) -> Owed:
    del columns[name]
    return Owed({}, rejected=rows) if name in ("request_id", "group_id") else owed


def _other(columns: dict[str, pa.Array], name: str, owed: Owed, rows: int, kind: str) -> Owed:
    columns[name] = _OTHERS[kind](rows)
    return Owed({}, rejected=rows) if name in ("request_id", "group_id") else owed


def _as_other_text(texts: pa.Array, kind: str) -> pa.Array:
    as_bytes = texts.view(pa.binary())
    type_ = _TEXTS[kind]
    if pa.types.is_dictionary(type_):
        encoded = as_bytes.dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices, encoded.dictionary.view(pa.string()))
    if pa.types.is_large_string(type_):
        return as_bytes.cast(pa.large_binary()).view(type_)
    if pa.types.is_string_view(type_):
        return as_bytes.cast(pa.binary_view()).view(type_)
    return as_bytes.cast(type_)


def _repeated(values: Sequence[Any], rows: int, type_: pa.DataType) -> pa.Array:
    return pa.array([values[row % len(values)] for row in range(rows)], type_)


def _deep_type(depth: int) -> pa.DataType:
    return pa.struct({"a": _deep_type(depth - 1)}) if depth else pa.int8()


def _deep_value(depth: int) -> Any:
    return {"a": _deep_value(depth - 1)} if depth else 1
