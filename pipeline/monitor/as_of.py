"""Time travel: open a Delta table at an earlier time or version."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import accumulate

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSelector

from group_coordinator.pipeline.delta import open_files
from group_coordinator.pipeline.errors import Failure, first_line

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMMIT = re.compile(r"(\d{20})\.json")


class NotKept(Failure):
    """A table is not kept at a time or version; the message has the versions in its log."""


class InvalidAsOf(Failure):
    """A text is neither a version nor a time."""


def read_as_of(text: str) -> datetime | int:
    """Parse a version or a time; a time without a zone is UTC. Raises InvalidAsOf.

    Times are in ISO 8601: `2026-11-22 12:00`, `2026-11-22T12:00:00+01:00`.
    """
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text))
    except ValueError as error:
        raise InvalidAsOf(f"{text!r} is neither a version nor an ISO 8601 time") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def to_ms(moment: datetime) -> int:
    """Return a time in ms since 1970-01-01 UTC."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def commit_times(uri: str) -> list[tuple[int, int]]:
    """Return each version that has a commit in the table's log, with its time in ms.

    A commit's time is the modification time of its file, as in Delta, but at least 1 ms after the
    previous commit, so that a clock that is set back does not reorder versions. Source: Delta's
    DeltaHistoryManager.monotonizeCommitTimestamps.
    """
    listed = open_files(uri).get_file_info(FileSelector("_delta_log", allow_not_found=True))
    found = sorted(
        (int(match[1]), info.mtime_ns // 1_000_000)
        for info in listed
        if (match := _COMMIT.fullmatch(info.base_name))
    )
    times = accumulate((at for _, at in found), lambda before, at: max(before + 1, at))
    return [(version, at) for (version, _), at in zip(found, times, strict=True)]


def open_as_of(uri: str, as_of: datetime | int) -> DeltaTable | None:
    """Open a table at a time or version; None if it did not exist then. Raises NotKept."""
    known = commit_times(uri)
    if isinstance(as_of, datetime):
        past = [version for version, at in known if at <= to_ms(as_of)]
        if not past:
            if known and known[0][0] == 0:
                return None
            raise _not_kept(uri, f"at {_iso_time(to_ms(as_of))}", known)
        version = past[-1]
    else:
        version = as_of
    try:
        return DeltaTable(uri, version=version)
    except (DeltaError, OverflowError) as error:
        raise _not_kept(uri, f"at version {version}", known, first_line(error)) from error


def _not_kept(uri: str, when: str, known: list[tuple[int, int]], why: str = "") -> NotKept:
    (first, first_at), (last, _) = known[0], known[-1]
    reach = f"its log has the versions {first} to {last}, the first of {_iso_time(first_at)}"
    return NotKept(
        f"the table {uri} {when} is not retained: {reach}{f' ({why})' if why else ''}. "
        "offsets_as_of(TIMESTAMP) reaches back as far as offsets_history.retention.ms"
    )


def _iso_time(at_ms: int) -> str:
    return (EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds")
