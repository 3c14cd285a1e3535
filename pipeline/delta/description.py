"""A table's description as its log has it: the newest metaData and protocol actions, verbatim.

Spark compares a version checksum's description with the log's, text by text: a description that was
read and written anew would be refused (DELTA_STATE_RECOVER_ERROR) wherever it differs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from group_coordinator.pipeline.delta.actions import NotWhole
from group_coordinator.pipeline.delta.log import commit_path, last_checkpoint
from group_coordinator.pipeline.delta.parquet_file import read_whole

_ACTIONS = ("metaData", "protocol")
_MAPS = ("configuration", "options")
_MARKS = tuple(f'"{name}"'.encode() for name in _ACTIONS)
_VERSION_DIGITS = 20

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def read_description(folder: Path, version: int) -> dict[str, Any] | None:
    """Return {"metaData": ..., "protocol": ...} as of a version; `folder` is the log's.

    Reads the commits back to the last Delta checkpoint, and one column of that. None if the log
    does not have them, as while it is being cleaned up.
    """
    found: dict[str, Any] = {}
    noted = last_checkpoint(folder)
    until = noted.version if noted is not None and noted.version <= version else -1
    for number in range(version, until, -1):
        try:
            content = commit_path(folder, number).read_bytes()
        except FileNotFoundError:
            break
        for line in content.splitlines():
            if any(mark in line for mark in _MARKS):
                _keep(found, _whole(line))
        if len(found) == len(_ACTIONS):
            return found
    checkpoint = _newest_checkpoint(folder, until, version)
    if checkpoint is None:
        return None
    with read_whole(str(checkpoint)):
        rows = pq.read_table(checkpoint, columns=list(_ACTIONS))
    for name in _ACTIONS:
        for value in rows.column(name).drop_null().to_pylist():
            _keep(found, {name: _plain(value)})
    return found if len(found) == len(_ACTIONS) else None


def _whole(line: bytes) -> dict[str, Any]:
    try:
        return _decode(line)
    except msgspec.MsgspecError as error:
        raise NotWhole(f"a commit is cut off: {error}") from error


def _newest_checkpoint(folder: Path, noted: int, version: int) -> Path | None:
    """Return the newest Delta checkpoint up to a version; lists the log only if none is noted."""
    path = folder / f"{noted:0{_VERSION_DIGITS}}.checkpoint.parquet"
    if noted >= 0 and path.exists():
        return path
    found = sorted(folder.glob("*.checkpoint.parquet"))
    return max((p for p in found if int(p.name[:_VERSION_DIGITS]) <= version), default=None)


def _keep(found: dict[str, Any], action: dict[str, Any]) -> None:
    for name in _ACTIONS:
        if name in action:
            found.setdefault(name, action[name])


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Return an action of a checkpoint's row as a commit has it: maps as objects, no nulls."""
    plain: dict[str, Any] = {}
    for name, field in value.items():
        if name in _MAPS:
            plain[name] = dict(field or ())
        elif isinstance(field, dict):
            plain[name] = _plain(field)
        elif field is not None:
            plain[name] = field
    return plain
