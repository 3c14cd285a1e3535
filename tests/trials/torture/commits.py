"""The rows of a table in the order of their commits, each commit read once.

A commit that removes files is a rewrite of rows that were there before, so it has no new ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow.parquet as pq

from group_coordinator.pipeline.delta.identity import read_commit
from group_coordinator.pipeline.delta.store_files import open_files


class Commit(NamedTuple):
    """A commit's version, its writer's time (ms), its transaction identifiers and its rows."""

    version: int
    at_ms: int
    app_ids: tuple[str, ...]
    rows: list[dict[str, Any]]


class CommitReader:
    """Reads the commits of one local table, from its first version on."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self._folder = folder
        self._files = open_files(str(folder))
        self._columns = list(columns)
        self._next = 0

    def read(self) -> Iterator[Commit]:
        """Read the commits that came since the last call."""
        while (content := read_commit(self._files, self._next)) is not None:
            yield self._parse(content)
            self._next += 1

    def _parse(self, content: bytes) -> Commit:
        at_ms, app_ids, paths, rewrite = 0, [], [], False
        for action in map(msgspec.json.decode, content.splitlines()):
            at_ms = action.get("commitInfo", {}).get("timestamp", at_ms)
            app_ids += [action["txn"]["appId"]] if "txn" in action else []
            paths += [action["add"]["path"]] if "add" in action else []
            rewrite |= "remove" in action
        rows = [] if rewrite else [row for path in paths for row in self._rows(path)]
        return Commit(self._next, at_ms, tuple(app_ids), rows)

    def _rows(self, path: str) -> list[dict[str, Any]]:
        with pq.ParquetFile(self._folder / path) as file:
            found: list[dict[str, Any]] = file.read(columns=self._columns).to_pylist()
        return found
