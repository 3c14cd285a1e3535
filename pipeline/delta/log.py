"""Reading the log of a table in a local folder, commit by commit.

The next commit costs one attempt to open a file. No snapshot of the table is read: a writer that
needs one before every attempt loses against writers that need none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from group_coordinator.pipeline.delta.actions import Action, parse_commit
from group_coordinator.pipeline.delta.table import ATTEMPTS, back_off
from group_coordinator.pipeline.errors import Failure


class LogGone(Exception):
    """The log was cleaned up beyond the version that is to be read next."""


def commit_path(folder: Path, version: int) -> Path:
    """Return the path of a version's commit; `folder` is the log's."""
    return folder / f"{version:020}.json"


# Where a log notes its newest Delta checkpoint.
NOTE = "_last_checkpoint"
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*")


class LastCheckpoint(msgspec.Struct):
    """The newest Delta checkpoint: its version and its number of actions."""

    version: int
    size: int


def last_checkpoint(folder: Path) -> LastCheckpoint | None:
    """Return the newest Delta checkpoint by the log's own note of it, None without a note.

    What a note cannot tell, as while Spark writes it in place, the log's listing does.
    """
    try:
        content = (folder / NOTE).read_bytes()
    except FileNotFoundError:
        return None
    return decode_last_checkpoint(content) or listed_checkpoint(os.listdir(folder))


def listed_checkpoint(names: Iterable[str]) -> LastCheckpoint | None:
    """Return the newest Delta checkpoint among the names of a log's files, of no known size."""
    found = filter(None, map(_CHECKPOINT.fullmatch, names))
    newest = max((int(each[1]) for each in found), default=None)
    return None if newest is None else LastCheckpoint(newest, 0)


def decode_last_checkpoint(content: bytes) -> LastCheckpoint | None:
    """Return the note of a Delta checkpoint from its file's content, None if it is not readable."""
    try:
        return msgspec.json.decode(content, type=LastCheckpoint)
    except msgspec.MsgspecError:
        return None


def next_commit(folder: Path, version: int) -> list[Action] | None:
    """Return the actions of the commit after `version`, None if `version` is the newest.

    Raises LogGone if that commit was cleaned up, and Failure if it stays empty.
    """
    content = next_content(folder, version)
    return None if content is None else parse_commit(content)


def next_content(folder: Path, version: int) -> bytes | None:
    """Return the content of the commit after `version`; see `next_commit`."""
    commit = commit_path(folder, version + 1)
    content = _read(commit)
    if content is None:
        # A clean-up deletes a commit only after it wrote a later Delta checkpoint. So the
        # checkpoint is looked at after the commit: a commit that is missing because of a clean-up
        # is never taken for one that nobody has written yet.
        checkpoint = last_checkpoint(folder)
        if checkpoint is None or checkpoint.version <= version:
            return None
        # The commit and the checkpoint may both have been written since the first look.
        content = _read(commit)
        if content is None:
            raise LogGone(f"{folder} no longer has version {version + 1}")
    return content


def _read(commit: Path) -> bytes | None:
    for attempt in range(ATTEMPTS):
        try:
            content = commit.read_bytes()
        except FileNotFoundError:
            return None
        if content:
            return content
        # No writer commits nothing: a writer that creates the file in place has not filled it yet.
        back_off(attempt)
    raise Failure(f"{commit} is empty")
