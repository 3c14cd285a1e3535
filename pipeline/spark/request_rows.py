"""Rows of a DataFrame as rows of `requests`: columns are checked by the driver, values by tasks.

A row is decoded as a coordinator decodes it, so a row is refused exactly if a coordinator would
answer it with INVALID_REQUEST. A row has at most one body: the struct column that is named by its
`api`, or the JSON text in the column `BODY`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegralType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH, pack_rows
from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.decoding import DECODE_ERRORS, Malformed, decode_request
from group_coordinator.schemas.messages import RequestEvent
from group_coordinator.schemas.tables import REQUESTS, TIMESTAMP, to_arrow

if TYPE_CHECKING:
    from group_coordinator.pipeline.tables import RequestSigner

# The column with a request's body as JSON.
BODY = "body"
_SCHEMA = REQUESTS.schema.append(pa.field(BODY, pa.string()))
_REQUIRED = ("request_id", "group_id", "api")
_KINDS: tuple[tuple[Any, type[DataType], str], ...] = (
    (pa.types.is_string, StringType, "a string"),
    (pa.types.is_integer, IntegralType, "an integer"),
    (pa.types.is_boolean, BooleanType, "a boolean"),
    (pa.types.is_binary, BinaryType, "binary"),
    (pa.types.is_timestamp, TimestampType, "a timestamp with a time zone"),
    (pa.types.is_list, ArrayType, "an array"),
    (pa.types.is_struct, StructType, "a struct"),
)
_types = get_type_hints(RequestEvent, include_extras=True)
_decoders = {api: msgspec.json.Decoder(_types[api]) for api in DECIDED}
# The column in the path of msgspec's message: "... - at `$.heartbeat.member_id`".
_PATH = re.compile(r"`\$\.(\w+)")


class InvalidRequest(Failure):
    """A column or a row that cannot be written as a request; the message names it."""


# --- columns --------------------------------------------------------------------------------------


def check_columns(schema: StructType, has_prefix: bool) -> None:
    """Raise InvalidRequest unless rows of this schema can be requests.

    Columns are found by their exact names. Integers may have any width. With `has_prefix` the
    column `request_id` may be missing.
    """
    problems = [
        f"column {name} is missing"
        for name in _REQUIRED
        if name not in schema.names and not (has_prefix and name == "request_id")
    ]
    problems += [
        f"column {name} is there {count} times"
        for name in dict.fromkeys(schema.names)
        if (count := schema.names.count(name)) > 1
    ]
    problems += _struct_problems(schema, _SCHEMA, "")
    if problems:
        raise InvalidRequest(
            f"the DataFrame has no requests: {'; '.join(problems)}. "
            f"The columns are those of the table requests, and {BODY}"
        )


def _struct_problems(
    found: StructType, wanted: pa.Schema | pa.StructType, above: str
) -> Iterator[str]:
    types = {field.name: field.type for field in wanted}
    for field in found:
        name = above + field.name
        if field.name in types:
            yield from _type_problems(field.dataType, types[field.name], name)
        else:
            yield f"column {name} is unknown"


def _type_problems(found: DataType, wanted: pa.DataType, name: str) -> Iterator[str]:
    kind, title = next((kind, title) for is_kind, kind, title in _KINDS if is_kind(wanted))
    if isinstance(found, StructType) and kind is StructType:
        yield from _struct_problems(found, wanted, f"{name}.")
    elif isinstance(found, ArrayType) and kind is ArrayType:
        yield from _type_problems(found.elementType, wanted.value_type, name)
    elif not isinstance(found, (kind, NullType)):
        yield f"column {name} is {found.simpleString()}, not {title}"


# --- rows -----------------------------------------------------------------------------------------


class RowIds(NamedTuple):
    """The values for rows without a request id or `sent_at`.

    `prefix` is the beginning of the request ids of rows without one, None if they are refused.
    `partition` is the task's number among the tasks of the write. `sent_at` is the time of the
    write, ms, the same for all tasks.
    """

    prefix: str | None
    partition: int
    sent_at: int


class RequestRows:
    """The conversion of one task's rows to rows of `requests`; it keeps their order.

    `most` is the largest request, bytes as JSON. The rows without a `sent_at` get one: a take-over
    orders by it, and must find the order of tasks, and of the rows of a group in a task. So a
    task's times begin a millisecond after those of the task before it, and the rows of a group are
    a microsecond apart.
    """

    def __init__(self, ids: RowIds, signer: RequestSigner, most: int) -> None:
        self._ids = ids
        self._signer = signer
        self._most = most
        self._rows = 0
        self._stamped: dict[str, int] = {}

    def convert(self, batch: pa.RecordBatch) -> pa.Table:
        """Return a batch as rows of `requests`. Raises InvalidRequest for the first invalid row."""
        rows = self._with_ids(pa.Table.from_batches([batch]))
        for name in _REQUIRED:
            self._refuse_first(rows.column(name).is_null(), rows, name, "it is null")
        bodies: list[str | None] = [None] * rows.num_rows
        if BODY in rows.column_names:
            bodies = rows.column(BODY).to_pylist()
        self._check_one_body(rows)
        packed = pack_rows(rows.select([each for each in rows.column_names if each != BODY]))
        apis = rows.column("api").to_pylist()
        events = [
            self._decode(rows, place, text[KEY_WIDTH:], api, body)
            for place, (text, api, body) in enumerate(
                zip(packed.column("event").to_pylist(), apis, bodies, strict=True)
            )
        ]
        times = self._times(rows, events)
        self._rows += rows.num_rows
        return to_arrow(REQUESTS, events, {"sent_at": times})

    def _with_ids(self, rows: pa.Table) -> pa.Table:
        prefix, partition, _ = self._ids
        if prefix is None:
            return rows
        made = [f"{prefix}-{partition}-{self._rows + place}" for place in range(rows.num_rows)]
        ids = pa.chunked_array([pa.array(made, pa.string())])
        if "request_id" not in rows.column_names:
            return rows.append_column("request_id", ids)
        place = rows.column_names.index("request_id")
        given = rows.column(place).cast(pa.string())
        return rows.set_column(place, "request_id", pc.coalesce(given, ids))

    def _check_one_body(self, rows: pa.Table) -> None:
        """Refuse a row with a body that its `api` does not name, or with two bodies."""
        apis = rows.column("api")
        for name in filter(DECIDED.__contains__, rows.column_names):
            is_there = rows.column(name).is_valid()
            is_other = pc.and_(is_there, pc.not_equal(apis.cast(pa.string()), name))
            self._refuse_first(is_other, rows, name, "it is not null, and api names another body")
            if BODY in rows.column_names:
                is_second = pc.and_(is_there, rows.column(BODY).is_valid())
                self._refuse_first(is_second, rows, BODY, f"{name} has the body already")

    def _decode(
        self, rows: pa.Table, place: int, text: str, api: str, body: str | None
    ) -> RequestEvent:
        decoder = _decoders.get(api)
        if body is not None and decoder is not None:
            # Decoded alone, the text is certainly one value, which cannot close the event.
            try:
                decoder.decode(body)
            except DECODE_ERRORS as error:
                self._refuse(rows, place, BODY, str(error))
            text = f'{text[:-1]},"{api}":{body}}}'
        if 4 * len(text) > self._most and (size := len(text.encode())) > self._most:
            reason = f"the request takes {size} bytes, more than {self._most} (maxRequestSize)"
            self._refuse(rows, place, api, reason)
        event = decode_request(text)
        if isinstance(event, Malformed):
            self._refuse(rows, place, _column(event, decoder is not None), event.message)
        return self._signer.sign(event)

    def _times(self, rows: pa.Table, events: Sequence[RequestEvent]) -> pa.Array:
        given: list[int | None] = [None] * rows.num_rows
        if "sent_at" in rows.column_names:
            micros = rows.column("sent_at").cast(TIMESTAMP).cast(pa.int64())
            given = micros.to_pylist()
        times = [
            self._stamp(event.group_id) if at is None else at
            for event, at in zip(events, given, strict=True)
        ]
        return pa.array(times, TIMESTAMP)

    def _stamp(self, group_id: str) -> int:
        _, partition, sent_at = self._ids
        count = self._stamped.get(group_id, 0)
        self._stamped[group_id] = count + 1
        return (sent_at + partition) * 1000 + count

    def _refuse_first(
        self, is_invalid: pa.ChunkedArray, rows: pa.Table, column: str, reason: str
    ) -> None:
        place = pc.index(is_invalid, True).as_py()
        if place >= 0:
            self._refuse(rows, place, column, reason)

    def _refuse(self, rows: pa.Table, place: int, column: str, reason: str) -> NoReturn:
        request_id = rows.column("request_id")[place].as_py()
        raise InvalidRequest(
            f"row {self._rows + place} of task {self._ids.partition}, request {request_id!r}: "
            f"column {column}: {reason}. Nothing of this write is committed"
        )


def _column(malformed: Malformed, is_known_api: bool) -> str:
    found = _PATH.search(malformed.message)
    if found is not None:
        return found[1]
    if not is_known_api:
        return "api"
    return "api_version" if malformed.message.startswith("api_version") else malformed.api
