"""For any change of a table: a follower has the table's content at the follower's position.

Writers append, rewrite, checkpoint, trim and vacuum. Between two of their steps a follower looks,
and one of its reads may fail. A local folder also represents an object store.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from group_coordinator.pipeline.delta import followed
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.commit import Changes
from group_coordinator.pipeline.delta.data_file import Layout, data_files, write_rows
from group_coordinator.pipeline.delta.followed import TableFollower, TableTail, follow
from group_coordinator.pipeline.delta.log import LogGone, commit_path, is_table
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.table import open_store
from group_coordinator.pipeline.delta.writer import Writer
from tests.examples import examples
from tests.support.failing_reads import (
    BROKEN,
    KINDS,
    SILENT,
    STORE_KINDS,
    count_reads,
    failing_reads,
)

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])
COLUMNS = SCHEMA.names
# Few keys, so that they are written again and again.
KEYS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4)
# The errors that a follower may raise: any other one is a fault.
ERRORS = (OSError, DeltaError)
# Most looks read less often.
READS = st.integers(1, 12)

Newest = dict[str, int]


def _newest(before: Newest | None, rows: pa.Table, is_whole: bool) -> Newest:
    """Return the greatest number of each key: rows that are read twice change nothing."""
    found = {} if before is None or is_whole else dict(before)
    for key, n in pairs(rows):
        found[key] = max(found.get(key, -1), n)
    return found


def pairs(rows: pa.Table) -> list[tuple[str, int]]:
    return list(zip(rows["key"].to_pylist(), rows["n"].to_pylist(), strict=True))


class Followers(RuleBasedStateMachine):
    """A table with its content in each version, its writers, a follower and a tail."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.folder = Path(tempfile.mkdtemp(prefix="followers-"))
        self.uri = str(self.folder / "table")
        self.n = 0
        # For each version the rows that its commit appends, and the newest of each key.
        self.appended: list[list[tuple[str, int]]] = []
        self.held: list[Newest] = []

    @initialize(is_store=st.booleans())
    def begin(self, is_store: bool) -> None:
        self.is_store = is_store
        count_reads(self.patch, SILENT if is_store else BROKEN)
        self.followed: TableFollower[Newest] = TableFollower(
            self.uri, COLUMNS, self._take, lambda: is_table(self.uri)
        )
        self.take_fails = False
        assert not self.followed.poll()
        assert self.followed.known is None
        DeltaTable.create(self.uri, SCHEMA)
        self.tail: TableTail = follow(self.uri, COLUMNS)
        self._committed()

    def teardown(self) -> None:
        try:
            if self.held:
                self.look()
                assert self.followed.known == self.held[-1]
        finally:
            self.patch.undo()
            shutil.rmtree(self.folder)

    def _take(self, before: Newest | None, rows: pa.Table, is_whole: bool) -> Newest:
        if self.take_fails:
            raise ConnectionError("what is told of is away")
        return _newest(before, rows, is_whole)

    # --- what writers do --------------------------------------------------------------------------

    def _committed(self, *rows: tuple[str, int]) -> None:
        """Note one more version, which appends these rows."""
        before = self.held[-1] if self.held else {}
        self.appended.append(list(rows))
        self.held.append(before | dict(rows))
        assert DeltaTable(self.uri).version() >= len(self.held) - 1

    def _rows(self, keys: list[str]) -> pa.Table:
        numbers = range(self.n, self.n + len(keys))
        self.n += len(keys)
        return pa.table({"key": keys, "n": pa.array(numbers, pa.int64())}, schema=SCHEMA)

    @rule(files=st.lists(KEYS, min_size=1, max_size=2))
    def append(self, files: list[list[str]]) -> None:
        rows = [self._rows(keys) for keys in files]
        store = open_store(self.uri)
        added = [write_rows(store, Layout(each), {}) for each in rows]
        assert isinstance(Writer(self.uri, flushed=False).commit(Changes(added)), int)
        self._committed(*(pair for each in rows for pair in pairs(each)))

    @rule(keys=KEYS)
    def append_by_another_engine(self, keys: list[str]) -> None:
        rows = self._rows(keys)
        write_deltalake(self.uri, rows, mode="append")
        self._committed(*pairs(rows))

    @rule()
    def commit_no_rows(self) -> None:
        Appender(self.uri).append(None, f"app-{len(self.held)}", 1)
        self._committed()

    @rule()
    def rewrite(self) -> None:
        """Leave the newest row of each key, in one file."""
        newest = self.held[-1]
        rows = pa.table({"key": list(newest), "n": list(newest.values())}, schema=SCHEMA)
        files = data_files(DeltaTable(self.uri))
        added = [write_rows(open_store(self.uri), Layout(rows), {})] if newest else []
        changes = Changes(added, files)
        if not files:
            return
        assert isinstance(Writer(self.uri, flushed=False).commit(changes), int)
        self._committed()

    @rule(trims=st.none() | st.integers(0, 3), vacuums=st.booleans())
    def keep_short(self, trims: int | None, vacuums: bool) -> None:
        """Write a Delta checkpoint, and delete superfluous log and data files."""
        DeltaTable(self.uri).create_checkpoint()
        if trims is not None:
            trim_log(self.uri, max(0, len(self.held) - trims), grace_s=0)
        if vacuums:
            DeltaTable(self.uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
        # delta-rs commits at the start and at the end.
        while len(self.held) <= DeltaTable(self.uri).version():
            self._committed()

    # --- what followers do ------------------------------------------------------------------------

    @rule()
    def look(self) -> None:
        """Look without a fault: all rows must be known."""
        self._poll_tail()
        self.followed.poll()
        assert self.followed.is_read
        assert self.followed.known == self.held[-1]
        assert self._at(self.tail) == len(self.held)

    @rule(fails=READS, kind=st.integers(0, len(KINDS) - 1), by_tail=st.booleans())
    def look_while_a_read_fails(self, fails: int, kind: int, by_tail: bool) -> None:
        kinds = STORE_KINDS if self.is_store else KINDS
        with failing_reads(str(self.folder), fails, kinds[kind]), suppress(*ERRORS):
            (self._poll_tail if by_tail else self.followed.poll)()

    @rule()
    def look_and_be_refused_by_what_is_told(self) -> None:
        self.take_fails = True
        with suppress(ConnectionError):
            self.followed.poll()
        self.take_fails = False

    @rule(keys=KEYS, is_late=st.booleans())
    def look_while_another_appends(self, keys: list[str], is_late: bool) -> None:
        """Let a writer append just before or just after the whole table is opened, if it is."""
        opened = followed.open_delta

        def opening(uri: str) -> DeltaTable:
            patch.undo()
            if not is_late:
                self.append([keys])
            handle = opened(uri)
            if is_late:
                self.append([keys])
            return handle

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(followed, "open_delta", opening)
            self.followed.poll()

    @rule(keys=KEYS, share=st.floats(0, 1, exclude_max=True))
    def look_while_a_commit_is_not_whole(self, keys: list[str], share: float) -> None:
        """Look while a writer creates its commit in place, which no store does."""
        self.append([keys])
        if self.is_store:
            return
        path = commit_path(self.folder / "table" / "_delta_log", len(self.held) - 1)
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        for poll in (self.followed.poll, self._poll_tail):
            with suppress(*ERRORS):
                poll()
            self.every_follower_is_at_its_place()
        path.write_bytes(content)

    def _poll_tail(self) -> None:
        """Check that the tail returns the rows of the commits since its position, in order."""
        before = self._at(self.tail)
        try:
            rows = self.tail.poll()
        except LogGone:
            # The log was cleaned up, or VACUUM deleted a file; impossible without a deletion.
            assert before < len(self.held)
            self.tail = follow(self.uri, COLUMNS)
            return
        after = self._at(self.tail)
        expected = [row for rows in self.appended[before:after] for row in rows]
        assert ([] if rows is None else pairs(rows)) == expected

    @staticmethod
    def _at(tail: TableTail) -> int:
        """Return the version that the tail reads next, from its beginning."""
        at = tail._at
        assert (at.row_group, at.row) == (0, 0)
        return at.version

    @invariant()
    def every_follower_is_at_its_place(self) -> None:
        """Check that each follower has the table's content at its position, or a little later."""
        if not self.held:
            return
        assert self._at(self.tail) <= len(self.held)
        if self.followed._held is None:
            assert self.followed.known is None
            return
        tail, known = self.followed._held
        place = self.held[self._at(tail) - 1]
        assert known.keys() >= place.keys()
        assert all(place.get(key, -1) <= n <= self.held[-1][key] for key, n in known.items())


@pytest.mark.slow
class TestFollowers(Followers.TestCase):
    settings = examples(8, stateful_step_count=20, phases=(Phase.explicit, Phase.generate))
