"""Members that heartbeat as fast as they are answered, at little cost to the load's own process.

Every member's heartbeat is made beforehand as a row, as `pipeline.bench.wire.Flood` makes it as
bytes for the broker. Each time it is sent, only the request id and the time are new. A request id
begins with the member's number.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from group_coordinator.pipeline.bench.fleet import Fleet
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.tail import follow
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.process import CoordinatorProcess
from group_coordinator.pipeline.tables.request_log import open_requests
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.schemas.tables import REQUESTS, RESPONSES, to_requests

_POLL_S = 0.002
# How long the last answers are awaited after the load has ended.
_LAST_ANSWERS_S = 60.0


class TableFlood:
    """The heartbeats of a fleet whose groups are Stable, one of each member at a time."""

    def __init__(self, fleet: Fleet) -> None:
        self._requests = open_requests(table_uri(fleet.root, REQUESTS))
        self._responses = follow(table_uri(fleet.root, RESPONSES), ["request_id", "error_code"])
        self._rows = to_requests([member.heartbeat() for member in fleet.members])
        self._waiting = np.zeros(len(self._rows), dtype=bool)
        self._sent = 0

    def run(self, seconds: float, process: CoordinatorProcess) -> float:
        """Flood the coordinator; return the heartbeats a second that it answered.

        Raises Failure if the coordinator ends, or answers with an error."""
        began = time.perf_counter()
        ready = np.arange(len(self._rows))
        answered = 0
        while (taken := time.perf_counter() - began) < seconds:
            self._send(ready)
            process.check()
            ready = self._answers()
            answered += len(ready)
        while self._waiting.any():
            if time.perf_counter() > began + seconds + _LAST_ANSWERS_S:
                raise Failure(f"{self._waiting.sum()} heartbeats were not answered")
            self._answers()
        return answered / taken

    def _send(self, members: np.ndarray) -> None:
        if not len(members):
            return
        self._sent += 1
        numbers = pa.array(members, pa.int32())
        ids = pc.binary_join_element_wise(numbers.cast(pa.string()), str(self._sent), "/")
        times = pa.array([clock_ms() * 1000] * len(members), pa.timestamp("us", tz="UTC"))
        rows = self._rows.take(numbers)
        for name, column in (("request_id", ids), ("sent_at", times)):
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(
                place, REQUESTS.schema.field(name), column.cast(REQUESTS.schema.field(name).type)
            )
        self._requests.append(rows)
        self._waiting[members] = True

    def _answers(self) -> np.ndarray:
        """The numbers of the members that were answered since the last call."""
        rows = self._responses.poll()
        if rows is None:
            time.sleep(_POLL_S)
            return np.arange(0)
        if pc.any(pc.not_equal(rows.column("error_code"), 0)).as_py():
            raise Failure("a heartbeat was answered with an error")
        parts = pc.split_pattern(rows.column("request_id"), "/")
        members: np.ndarray = pc.list_element(parts, 0).cast(pa.int32()).to_numpy()
        if not self._waiting[members].all():
            raise Failure("a heartbeat was answered twice")
        self._waiting[members] = False
        return members
