"""Torn log files, which a power loss may leave, and the repair of their tables.

A file system may keep a file's name and lose its content. Then a table's last commits, their data
files, or its newest Delta checkpoint may be empty, truncated or missing, and delta-rs and Spark
cannot read the table. Only files after the newest whole checkpoint are examined: its content was on
the disk before it.

A torn commit is voided: an empty commit replaces it, so that a follower never sees a version twice.
Its rows and transactions are lost, so a writer with a transaction identifier writes them again, if
it still can. A torn checkpoint is moved away. That loses nothing, because commits are deleted only
once a checkpoint with them is on the disk.

Concurrent writers may mislead an examination: a listing may miss a commit that was created during
it, or name a file that was cleaned up since. So a file counts as torn only if two examinations,
`CONFIRM_S` apart, find it. `mend` examines once more.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct

from group_coordinator.pipeline.clock import sleep
from group_coordinator.pipeline.delta.commit import (
    Action,
    NotWhole,
    commit_info,
    describe_operation,
    encode_commit,
    parse_commit,
)
from group_coordinator.pipeline.delta.log import commit_path, open_log
from group_coordinator.pipeline.delta.storage import flush, write_partial
from group_coordinator.pipeline.delta.table import NOTE, is_outside
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.quoting import quoted_text

# The folder below the table's root to which torn files are moved; VACUUM skips names with `_`.
KEPT = "_torn"
COMMIT, CHECKPOINT = "commit", "Delta checkpoint"
_MISSING = "its file is missing"
# The time between two examinations, s. Another engine that creates a file in place fills it sooner.
CONFIRM_S = 1.0
# Checkpoints of Delta's v2Checkpoint feature may be JSON.
_LOG_FILE = re.compile(r"(\d{20})\.(json|checkpoint\b.*\.(?:parquet|json))")
_PARQUET_END = b"PAR1"


class Torn(Struct, frozen=True):
    """A commit or Delta checkpoint that is unreadable, or adds unreadable files; `why` says how."""

    kind: str
    version: int
    why: str

    def line(self) -> str:
        """Return a description for users."""
        return f"{self.kind} {self.version}: {self.why}"


class TornTable(Failure):
    """A table that cannot be read because of torn files; the message names them."""

    def __init__(self, table: Path, torn: list[Torn]) -> None:
        told = "; ".join(each.line() for each in torn)
        super().__init__(f"the table at {table} has torn files, as after a power loss: {told}")


def find_torn(table: Path) -> list[Torn]:
    """Return the torn files of a table in a local folder: checkpoints first, then commits.

    Other processes may write meanwhile. Takes `CONFIRM_S` longer if anything seems torn. Raises
    OSError for a file that cannot be read.
    """
    torn = _look(table)[0]
    if torn:
        sleep(CONFIRM_S)
        torn = _both(torn, _look(table)[0])
    return torn


def check_whole(table: Path) -> None:
    """Raise TornTable if a table in a local folder has torn files."""
    torn = find_torn(table)
    if torn:
        raise TornTable(table, torn)


def mend(table: Path, found: list[Torn]) -> list[Torn]:
    """Repair those files of `found` that are still torn; return them.

    Torn commits are voided and torn checkpoints moved into the folder `_torn`. No other process may
    write to the table meanwhile. Raises Failure if the table's metadata is lost, which only version
    0 or a checkpoint has. Raises OSError for a file that cannot be read.
    """
    torn, is_described = _look(table)
    if not is_described:
        raise Failure(f"the metadata of the table at {table} is lost: move its folder away")
    torn = _both(found, torn)
    for each in torn:
        if each.kind == COMMIT:
            _void(table, each.version)
        else:
            _take_away(table, each.version)
    if torn:
        flush(table / "_delta_log")
    return torn


def _both(first: list[Torn], second: list[Torn]) -> list[Torn]:
    return [each for each in second if each in first]


# --- looking ------------------------------------------------------------------------------------


def _look(table: Path) -> tuple[list[Torn], bool]:
    log = table / "_delta_log"
    commits: set[int] = set()
    checkpoints: dict[int, list[Path]] = {}
    for name in os.listdir(log):
        match = _LOG_FILE.fullmatch(name)
        if match is None:
            continue
        version = int(match[1])
        if match[2] == "json":
            commits.add(version)
        else:
            checkpoints.setdefault(version, []).append(log / name)
    whole, torn = _torn_checkpoints(table, checkpoints)
    first = 0 if whole is None else whole + 1
    torn += _torn_commits(table, first, commits)
    lost = whole is None and any(each.kind == COMMIT and each.version == 0 for each in torn)
    return torn, not lost


def _torn_checkpoints(
    table: Path, checkpoints: dict[int, list[Path]]
) -> tuple[int | None, list[Torn]]:
    """Return the newest whole checkpoint's version (None: none), and the torn later checkpoints."""
    torn: list[Torn] = []
    noted = open_log(str(table)).last_checkpoint()
    if noted is not None and noted.version not in checkpoints:
        torn.append(Torn(CHECKPOINT, noted.version, _MISSING))
    for version in sorted(checkpoints, reverse=True):
        damages = [_damage(file, None) for file in checkpoints[version]]
        why = next((each for each in damages if each is not None), None)
        if why is None:
            return version, torn
        torn.append(Torn(CHECKPOINT, version, f"its file {why}"))
    return None, torn


def _torn_commits(table: Path, first: int, commits: set[int]) -> list[Torn]:
    torn: list[Torn] = []
    added: dict[str, tuple[int, int | None]] = {}
    for version in range(first, max(commits, default=-1) + 1):
        if version not in commits:
            torn.append(Torn(COMMIT, version, _MISSING))
            continue
        try:
            actions = _read(table / "_delta_log", version)
        except FileNotFoundError:
            # It was deleted after the listing.
            torn.append(Torn(COMMIT, version, _MISSING))
            continue
        if actions is None:
            torn.append(Torn(COMMIT, version, "its file is empty or truncated"))
            continue
        for action in actions:
            if action.add is not None:
                added[action.add.path] = version, action.add.size
            if action.remove is not None:
                added.pop(action.remove.path, None)
    why: str | None
    for path, (version, size) in added.items():
        if is_outside(unquote(path)):
            why = "lies outside of the table"
        elif size is None:
            # Delta requires `size`: delta-rs and Spark do not open a table without it.
            why = "has no size in the log"
        else:
            why = _damage(table / unquote(path), size)
        if why is not None:
            torn.append(Torn(COMMIT, version, f"{quoted_text(path)} {why}"))
    return sorted(torn, key=lambda each: each.version)


def _read(log: Path, version: int) -> list[Action] | None:
    content = commit_path(log, version).read_bytes()
    try:
        return parse_commit(content)
    except NotWhole:
        return None


def _damage(file: Path, size: int | None) -> str | None:
    """Return the damage of a file of `size` bytes (None: of any size), None if it is whole."""
    try:
        found = file.stat().st_size
        if size is not None and found != size:
            return f"has {found} bytes, not {size}"
        if file.suffix == ".json":
            return None if found else "is empty"
        with file.open("rb") as opened:
            opened.seek(-min(found, len(_PARQUET_END)), os.SEEK_END)
            whole = opened.read() == _PARQUET_END
    except FileNotFoundError:
        return "is missing"
    return None if whole else "is truncated"


# --- mending ------------------------------------------------------------------------------------


def _void(table: Path, version: int) -> None:
    log = table / "_delta_log"
    target = commit_path(log, version)
    if target.exists():
        (_kept(table) / target.name).write_bytes(target.read_bytes())
        _keep_rows(table, version)
    # The name that delta-rs and Databricks give to FSCK REPAIR TABLE.
    info = commit_info(describe_operation("FSCK", {}), is_blind_append=True, others=0)
    os.replace(write_partial(log, encode_commit([info]), flushed=True), target)
    for checksum in log.glob("*.crc"):
        # Checksums of this and later versions may count the voided commit's files.
        if int(checksum.stem) >= version:
            checksum.unlink()


def _keep_rows(table: Path, version: int) -> None:
    """Copy the data files of a commit into `_torn`, because no commit names them afterwards."""
    for action in _read(table / "_delta_log", version) or ():
        if action.add is None or is_outside(action.add.file):
            continue
        file, kept = table / action.add.file, _kept(table) / Path(action.add.file).name
        if file.is_file() and not kept.exists():
            shutil.copy2(file, kept)


def _take_away(table: Path, version: int) -> None:
    log = table / "_delta_log"
    for file in log.glob(f"{version:020}.checkpoint*"):
        os.replace(file, _kept(table) / file.name)
    noted = open_log(str(table)).last_checkpoint()
    if noted is not None and noted.version == version:
        (log / NOTE).unlink()


def _kept(table: Path) -> Path:
    folder = table / KEPT
    folder.mkdir(exist_ok=True)
    return folder
