"""Tables `requests` and `responses` of many requests that were answered; made column by column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from group_coordinator.pipeline.tables.store import ensure_table
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.tables import REQUESTS, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CHUNK = 200_000
_BEAT_TYPE = REQUESTS.schema.field("heartbeat").type
_BEAT = {"generation_id": 1, "member_id": "m", "group_instance_id": None}


def write_answered(root: str, requests: int, groups: Sequence[str], now: int) -> None:
    """Append so many heartbeats of the groups, in turn, and their answers.

    One a millisecond was sent, and answered at once; the newest before `now`, ms.
    """
    names = pa.array(groups)
    tables = [(table, ensure_table(root, table)) for table in (REQUESTS, RESPONSES)]
    for first in range(0, requests, _CHUNK):
        number = np.arange(first, min(first + _CHUNK, requests))
        at = pa.array((now - requests + number) * 1000, pa.timestamp("us", "UTC"))
        ids = pc.binary_join_element_wise("bench-beat-", pa.array(number).cast(pa.string()), "")
        given = {
            "request_id": ids,
            "group_id": names.take(pa.array(number % len(groups))),
            "api": pa.repeat(pa.scalar("heartbeat"), len(number)),
            "sent_at": at,
            "responded_at": at,
            "heartbeat": pa.repeat(pa.scalar(_BEAT, _BEAT_TYPE), len(number)),
            "error_code": pa.repeat(pa.scalar(int(ErrorCode.NONE)), len(number)),
            "error": pa.repeat(pa.scalar(ErrorCode.NONE.name), len(number)),
        }
        for table, handle in tables:
            write_deltalake(handle, _rows(table.schema, given, len(number)), mode="append")


def _rows(schema: pa.Schema, given: Mapping[str, pa.Array], length: int) -> pa.Table:
    columns = [
        given[field.name].cast(field.type) if field.name in given else pa.nulls(length, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
