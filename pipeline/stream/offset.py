"""Offsets of the stream, as Spark logs them: its positions, and its selection of partitions.

A node gains and releases offsets partitions while its query runs. The change is an event in the
bootstrap, `SelectionChange`. The batch that reads it, and every later one, uses the new selection.
Spark logs the selection in each batch's offset, so a repeated batch reads the same requests.

The event is the first row of a row group. Its batch takes the rest of the event's commit, however
large, and no later commit of the bootstrap. So groups are unloaded in the batch that no longer
reads their requests, and no batch has two changes. The events that load groups precede the change,
and may take many batches; until the change, the query uses the previous selection.

A change names its run of the query. A later run begins with its own selection, and ignores it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.coordinator.group.control import PREFIX
from group_coordinator.coordinator.group.group_snapshot import VERSION
from group_coordinator.coordinator.group.partition import PartitionSet
from group_coordinator.pipeline.delta import Position
from group_coordinator.pipeline.stream.packed_events import FIRST_KEY, KEY_WIDTH
from group_coordinator.schemas.decoding import DECODE_ERRORS

# The group id of the event; the source does not pass it on to a group.
CHANGE_GROUP = "__coordinator_change"
_CHANGE = f'{FIRST_KEY}{PREFIX}:"change"'


class Selection(Struct, frozen=True):
    """The requests that a stream reads: those of `partitions`, out of `of` offsets partitions.

    `partitions` None is all. `passed_over` maps gained partitions to the last version of `requests`
    that the stream skips for them: the former owner has answered these requests, or the bootstrap
    has them.
    """

    partitions: tuple[int, ...] | None = None
    of: int = 0
    passed_over: dict[int, int] = {}

    def at(self, version: int) -> PartitionSet | None:
        """Return the offsets partitions that a version of `requests` is read for; None for all."""
        passed_over = {p for p, last in self.passed_over.items() if version <= last}
        if self.partitions is None and not passed_over:
            return None
        mine = range(self.of) if self.partitions is None else self.partitions
        return PartitionSet(frozenset(mine) - passed_over, self.of)

    def since(self, version: int) -> Selection:
        """Return the selection without skips that end before `version`."""
        later = {p: last for p, last in self.passed_over.items() if version <= last}
        return replace(self, passed_over=later)

    def has(self, partition: int) -> bool:
        """Return whether the stream reads requests of an offsets partition."""
        return self.partitions is None or partition in self.partitions

    def missed_by(self, before: Selection, at: Position) -> dict[int, int]:
        """Return the gained partitions with requests before `at` that the stream must still read.

        The result maps each partition to the first version of `requests` to read for it. Earlier
        batches skipped these requests, because their selection `before` did not have the partition:
        the events that load its groups were still being added to the bootstrap.
        """
        return {
            p: last + 1
            for p, last in self.passed_over.items()
            if self.has(p) and not before.has(p) and Position(last + 1) < at
        }


class SelectionChange(Struct, frozen=True, tag_field="control", tag="change"):
    """The control event after which a run of the query uses another selection."""

    run: int
    selection: Selection


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SelectionChange).decode


def change_row(change: SelectionChange) -> tuple[str, str]:
    """Return a change as a row of the bootstrap: group id and packed event."""
    return CHANGE_GROUP, FIRST_KEY + _encode(change).decode()


def split_change(rows: pa.Table) -> tuple[pa.Table, SelectionChange | None]:
    """Split a page of the bootstrap into its packed events and its change, if any."""
    if not rows.num_rows:
        return rows, None
    first = rows.column("event").slice(0, 1)
    if not pc.starts_with(first, _CHANGE)[0].as_py():
        return rows, None
    return rows.slice(1), _decode(first[0].as_py()[KEY_WIDTH:])


class Offset(Struct, frozen=True):
    """The position of the stream in its two tables, as Spark logs it in JSON.

    An offset at the end of a batch also fixes what a repeated batch decides. `run`, the number of
    the query's run that planned it, gives its settings (`pipeline.stream.pinned_settings`).
    `selection` names the partitions that it reads. `max_request_bytes` is the limit of a request,
    None if an earlier release planned the batch. `missed` maps gained partitions to the first
    version of `requests` that the batch reads for them (`Selection.missed_by`).
    """

    bootstrap: Position
    requests: Position
    run: int
    selection: Selection
    max_request_bytes: int | None = None
    missed: dict[int, int] = {}


class Planned(Struct, frozen=True):
    """The newest batch that a streaming checkpoint has planned, and its end offset as JSON.

    `query_id` identifies the query's commits; None if the checkpoint has no query id.
    """

    batch_id: int
    offset: str
    query_id: str | None = None


def from_plain(plain: dict[str, Any]) -> Offset:
    """Convert decoded JSON to an offset. Raises msgspec.ValidationError."""
    return msgspec.convert(plain, Offset, str_keys=True)


def offset_of(text: str | dict[str, Any] | None) -> Offset | None:
    """Decode an offset as Spark reports it; return None for one of another source or release."""
    try:
        if isinstance(text, str):
            return msgspec.json.decode(text, type=Offset)
        return None if text is None else from_plain(text)
    except DECODE_ERRORS:
        return None


class Bootstrap(Struct, frozen=True):
    """The position at which a new streaming checkpoint begins.

    The stream first reads the bootstrap: a table at `uri` with events that load the groups. It
    reads this table from `version` on. Then it reads `requests` from `first_version` on, because
    the bootstrap contains the effects of all earlier versions. `state_version` is the format of the
    groups' states in the checkpoint. `requests_table` is the `table_number` of `requests`, or None
    if an earlier release wrote the bootstrap.
    """

    uri: str
    version: int
    first_version: int
    state_version: int = VERSION
    requests_table: int | None = None
