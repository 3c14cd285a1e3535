"""Fault injection between the code under test and the files of its tables.

The tables are real Delta tables in a folder. This module replaces the creation of a commit, the
writing of a data file, and the deletion of a file. Each takes a short time, in which other actors
may take steps, and each may fail. Reads of a file, a folder or a table may fail too, in every
library (`tests.support.failing_reads`, `troubles`). Names of files come from the seed, and a file's
modification time is the world's.
"""

from __future__ import annotations

import errno
import math
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import Struct

from group_coordinator.pipeline.delta import appender
from group_coordinator.pipeline.delta.commit import parse_commit
from group_coordinator.pipeline.delta.data_file import DataFile, Layout, write_rows
from group_coordinator.pipeline.delta.storage import Disk
from group_coordinator.pipeline.topics import log_appender
from tests.support.failing_reads import count_files, telling_of_reads
from tests.trials.simulation.clocks import BEGIN_MS
from tests.trials.simulation.troubles import Troubles
from tests.trials.simulation.world import Process, Stopped, World

FAIL = "fail"
ANSWER_LOST = "answer lost"
UNKNOWN = "unknown"
CRASH_BEFORE = "crash before"
CRASH_AFTER = "crash after"
PAUSE = "pause"
STAND_STILL = "stand still"
# In place of a table's name, for the writing of a data file.
DATA_FILE = "data file"
OUTCOMES = (FAIL, ANSWER_LOST, UNKNOWN, CRASH_BEFORE, CRASH_AFTER, PAUSE, STAND_STILL)

# The probability that other actors overtake a commit or a file, and the longest delay, ms.
_OVERLAP_CHANCE = 0.15
_LONGEST_OVERLAP_MS = 60.0
_LONGEST_OPERATION_MS = 3.0


class CommitFault(Struct, frozen=True):
    """A fault of the next commit of a process to a table; `table` null is any.

    `fail`: an error is raised and nothing is written. `answer lost`: the commit is written, and an
    error is raised. `unknown`: in addition, the next attempt to read the commit fails. `crash`: the
    process is killed. `pause`: the thread is paused first, for `pause_ms`. `stand still`: the
    process is.
    """

    process: str
    table: str | None
    outcome: str
    pause_ms: float = 0.0


class Commit(Struct, frozen=True):
    """A visible commit: its appended rows, the versions of its transactions, and its writer.

    `parts`: the rows again, by new data file, with its partition values. `removes`: whether it
    deletes rows from the table.
    """

    table: str
    rows: pa.Table | None
    transactions: dict[str, int]
    writer: Process
    parts: tuple[tuple[dict[str, str | None], pa.Table], ...] = ()
    removes: bool = False


class Files:
    """The files under a root; `on_commit` gets each commit as soon as it is visible."""

    def __init__(self, world: World, root: Path, on_commit: Callable[[Commit], None]) -> None:
        self.faults: list[CommitFault] = []
        self.troubles = Troubles(world, root)
        # Tables with a missing folder, and the time at which a table was last brought back or
        # replaced.
        self.away: set[str] = set()
        self.moved_at = -math.inf
        # How many writings of a file are under way, by table.
        self._writings: Counter[str] = Counter()
        self._world = world
        self._root = root
        self._prefix = f"{root}/"
        self._on_commit = on_commit
        self._chance = world.rng("files")
        self._names = world.rng("names")
        # Data files that no commit names yet, with their writer and their rows.
        self._uncommitted: dict[str, tuple[Process, pa.Table]] = {}
        # When a data file was written or, if it was since, removed from its table; true ms.
        self._changed_at: dict[str, float] = {}
        self._vacuumed: set[str] = set()
        self._link = os.link
        self._write_table = pq.write_table
        self._unlink = Path.unlink
        self._read_bytes = Path.read_bytes
        self._unreadable: set[Path] = set()
        self._encoded = pa.table({})
        # Whether the current read is the trial's own.
        self._is_ours = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the operating system's functions within the block."""
        unlink, read_bytes = self._unlink, self._read_bytes

        def unlink_path(path: Path, missing_ok: bool = False) -> None:
            self._before(path)
            unlink(path, missing_ok)

        read_table = pq.read_table

        def read_parquet(source: Any, *rest: Any, **options: Any) -> pa.Table:
            # By its path a file is opened in C++.
            if isinstance(source, Path) and self.read(source) is not None:
                raise pa.ArrowInvalid(f"{source} ends too early")
            return read_table(source, *rest, **options)

        def read_path(path: Path) -> bytes:
            if path in self._unreadable:
                self._unreadable.remove(path)
                raise OSError(errno.EIO, "the store does not answer", str(path))
            share = self.read(path)
            with self.ours():
                content = read_bytes(path)
            return content if share is None else content[: int(share * len(content))]

        with ExitStack() as stack:
            for owner, name, value in (
                (os, "link", self.create_commit),
                (pq, "write_table", self.write_table),
                (pq, "read_table", read_parquet),
                (appender, "write_rows", self.write_rows),
                (log_appender, "write_rows", self.write_rows),
                (Disk, "write", self._file_write()),
                (Path, "unlink", unlink_path),
                (Path, "read_bytes", read_path),
                (uuid, "uuid4", self.new_name),
            ):
                stack.enter_context(replaced(owner, name, value))
            count_files(stack.enter_context(pytest.MonkeyPatch.context()))
            stack.enter_context(telling_of_reads(self))
            yield

    @contextmanager
    def ours(self) -> Iterator[None]:
        """Read without faults within the block; no other actor runs in it."""
        before, self._is_ours = self._is_ours, True
        try:
            yield
        finally:
            self._is_ours = before

    def read(self, path: object, _file: Path | None = None) -> float | None:
        """Take note of a read; see `tests.support.failing_reads.Reads`."""
        actor = self._world.current
        if self._is_ours or actor is None or not str(path).startswith(self._prefix):
            return None
        self._world.check_alive()
        self.troubles.operation(actor)
        return self.troubles.read(actor, path)

    def new_name(self) -> uuid.UUID:
        """`uuid.uuid4`, by the seed."""
        return uuid.UUID(int=self._names.getrandbits(128), version=4)

    def create_commit(self, source: str | Path, target: str | Path) -> None:
        """`os.link`: create a commit, unless its version is there."""
        path = Path(target)
        with self._writing(path):
            self._create_commit(source, path)

    def _create_commit(self, source: str | Path, path: Path) -> None:
        if not self._before(path):
            self._link(source, path)
            return
        table = path.parent.parent.name
        outcome = self._meet_fault(table)
        if outcome == FAIL:
            raise OSError(errno.EIO, "the store does not answer", str(path))
        with self.ours():
            content = self._read_bytes(Path(source))
        self._link(source, path)
        self._world.count("commits")
        with self.ours():
            self._on_commit(self._described(table, content))
        if outcome == CRASH_AFTER:
            self._crash()
        if outcome == UNKNOWN:
            self._unreadable.add(path)
        if outcome in (ANSWER_LOST, UNKNOWN):
            raise OSError(errno.EIO, "the store's answer is lost", str(path))

    def point(self, name: str) -> None:
        """Take a step between two operations: other actors may go first, and a fault may happen."""
        if self._meet_fault(name) == CRASH_AFTER:
            self._crash()

    def write_table(self, rows: Any, target: Any, **options: Any) -> None:
        """`pyarrow.parquet.write_table`."""
        if not isinstance(target, Path):
            self._write_table(rows, target, **options)
            return
        self._write(rows, target, lambda: self._write_table(rows, target, **options))

    def write_rows(self, store: Disk, layout: Layout, *rest: Any, **options: Any) -> DataFile:
        """`pipeline.delta.data_file.write_rows`, which calls `Disk.write` by these rows."""
        self._encoded = layout.rows
        return write_rows(store, layout, *rest, **options)

    def _file_write(self) -> Callable[..., int]:
        """`Disk.write`."""
        original = Disk.write

        def write(disk: Disk, path: str, content: Any, flushed: bool = False) -> int:
            target = disk.folder / path
            self._write(self._encoded, target, lambda: original(disk, path, content, flushed))
            return target.stat().st_mtime_ns // 1_000_000

        return write

    def are_written(self, table: str) -> bool:
        """Return whether any process is writing a file of a table."""
        return self._writings[table] > 0

    def is_disturbed(self, since: float) -> bool:
        """Whether the folder of a table was away, or replaced, at any true time since then, ms."""
        return bool(self.away) or self.moved_at >= since

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        """Count a writing of a file."""
        table = path.parts[len(self._root.parts)] if self._root in path.parents else ""
        self._writings[table] += 1
        try:
            yield
        finally:
            self._writings[table] -= 1

    def _write(self, rows: pa.Table, target: Any, write: Callable[[], object]) -> None:
        with self._writing(Path(target)):
            self._write_now(rows, target, write)

    def _write_now(self, rows: pa.Table, target: Any, write: Callable[[], object]) -> None:
        ours = self._before(Path(target))
        outcome = self._meet_fault(DATA_FILE) if ours else None
        if outcome in (FAIL, ANSWER_LOST, UNKNOWN):
            raise OSError(errno.ENOSPC, "no space left", str(target))
        write()
        if outcome == CRASH_AFTER:
            self._crash()
        if ours:
            self._uncommitted[Path(target).name] = self._writer(), rows
            self._changed_at[Path(target).name] = self._world.now
            at_s = (BEGIN_MS + self._world.now) / 1000
            os.utime(target, (at_s, at_s))

    def idle_ms(self, path: Path) -> float:
        """For how long a data file that its table does not have has been so, ms of true time.

        0 while its writer may still commit it: no write takes as long as files are kept, which is a
        week.
        """
        uncommitted = self._uncommitted.get(path.name)
        if uncommitted is not None and uncommitted[0].alive:
            return 0.0
        return self._world.now - self._changed_at.setdefault(path.name, self._world.now)

    def vacuum(self, path: Path) -> None:
        """Delete a data file."""
        self._vacuumed.add(path.name)
        self._unlink(path)

    def was_vacuumed(self, error: Exception) -> bool:
        """Return whether an error is that of a reader of a vacuumed file."""
        texts = [str(error), str(error.__cause__)]
        return any(name in text for name in self._vacuumed for text in texts)

    def _before(self, path: Path) -> bool:
        """Advance the time for an operation on a file; return whether the file is simulated."""
        actor = self._world.current
        if actor is None or self._root not in path.parents:
            return False
        self._world.check_alive()
        self.troubles.operation(actor)
        self._world.now += self._chance.uniform(0, _LONGEST_OPERATION_MS)
        return True

    def _meet_fault(self, table: str) -> str | None:
        """Apply a pending fault of this operation; return the part that is still to happen."""
        fault = self._take_fault(table)
        outcome = None if fault is None else fault.outcome
        if fault is not None:
            self._world.tell(f"{table}: {fault.outcome}")
            self._world.count(f"faults: {fault.outcome}")
        if fault is not None and outcome == PAUSE:
            self._world.sleep(fault.pause_ms / 1000)
        elif fault is not None and outcome == STAND_STILL:
            self._world.count("standstills")
            self._world.stand_still(self._writer(), fault.pause_ms)
        elif self._world.may_overlap and self._chance.random() < _OVERLAP_CHANCE:
            self._world.sleep(self._chance.uniform(0, _LONGEST_OVERLAP_MS) / 1000)
        if outcome == CRASH_BEFORE:
            self._crash()
        return outcome

    def _described(self, table: str, content: bytes) -> Commit:
        actions = parse_commit(content)
        rows, parts = [], []
        for add in (action.add for action in actions if action.add is not None):
            written = self._uncommitted.pop(Path(add.file).name, None)
            if written is not None:
                rows.append(written[1])
                if add.data_change:
                    parts.append((add.partition_values, written[1]))
        removed = [action.remove for action in actions if action.remove is not None]
        for remove in removed:
            self._changed_at[Path(remove.file).name] = self._world.now
        transactions = {
            action.txn.app_id: action.txn.version for action in actions if action.txn is not None
        }
        appended = pa.concat_tables(rows) if rows else None
        removes = any(remove.data_change for remove in removed)
        return Commit(table, appended, transactions, self._writer(), tuple(parts), removes)

    def _writer(self) -> Process:
        assert self._world.current is not None
        return self._world.current.process

    def _take_fault(self, table: str) -> CommitFault | None:
        for fault in self.faults:
            wanted = fault.table or (None if table == DATA_FILE else table)
            if fault.process == self._writer().name and wanted == table:
                self.faults.remove(fault)
                return fault
        return None

    def _crash(self) -> None:
        self._world.count("crashes")
        self._writer().kill()
        raise Stopped


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace the value of an attribute within the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
