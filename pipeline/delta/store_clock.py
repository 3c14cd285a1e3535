"""The clock of the store that holds a table, against that of this machine.

A store stamps each file with its own time. Whoever deletes files by their age compares that with
the time of the machine it runs on: with a clock a day fast VACUUM would take the file of an append
that is about to be committed for one that was left behind days ago.
"""

from __future__ import annotations

import uuid

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.errors import Failure

# By how much the two may differ, ms: far more than clocks that are kept right do, and far less than
# the least age, an hour, of a file that is deleted.
MOST_SKEW_MS = 10 * 60_000


class ClockSkew(Failure):
    """This machine's clock and the store's differ; the message says by how much."""


def check_clock(uri: str) -> None:
    """Raise ClockSkew if this machine's clock is not the table's store's; three requests."""
    skew_ms = clock_ms() - _store_clock_ms(uri)
    if abs(skew_ms) > MOST_SKEW_MS:
        way = "ahead of" if skew_ms > 0 else "behind"
        raise ClockSkew(
            f"this machine's clock is {abs(skew_ms) / 1000:,.0f} s {way} that of the store of "
            f"{uri}: by such a clock no file may be deleted for its age"
        )


def _store_clock_ms(uri: str) -> int:
    files = open_files(uri)
    # Readers and VACUUM pass over names that begin so.
    name = f"_clock-{uuid.uuid4()}"
    with files.open_output_stream(name):
        pass
    try:
        return int(files.get_file_info(name).mtime_ns) // 1_000_000
    finally:
        files.delete_file(name)
