"""The file of keys by which requests are signed (`coordinator.signatures`), a JSON object a line.

A coordinator has the keys of all; a producer has a file with its own one. Keys are secrets: the
file is its owner's alone, and no key is ever written to a table, a checkpoint or a log.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from group_coordinator.coordinator.signatures import RequestKey
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.private_file import changing, read_private, write_private
from group_coordinator.schemas.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECRET_BYTES = 32


class KeysError(Failure):
    """The file of keys cannot be read, or a key cannot be as asked for."""


def read_keys(path: str | Path) -> list[RequestKey]:
    """Read a file of keys. Raises KeysError, which names the line that is none."""
    try:
        lines = read_private(Path(path)).splitlines()
    except OSError as error:
        raise KeysError(f"the keys' file {path}: {error.strerror}") from error
    return [_read_line(path, n, line) for n, line in enumerate(lines, 1) if line.strip()]


def read_key(path: str | Path) -> RequestKey:
    """Read the one key of a producer's file. Raises KeysError."""
    keys = read_keys(path)
    if len(keys) != 1:
        raise KeysError(f"{path} has {len(keys)} keys: a producer signs by one, its own")
    return keys[0]


def _read_line(path: str | Path, number: int, line: bytes) -> RequestKey:
    try:
        key = msgspec.json.decode(line, type=RequestKey)
    except UNREADABLE:
        # Not the decoder's words: they may have some of the secret in them.
        raise KeysError(f"line {number} of {path} is no key") from None
    if len(key.secret) < _SECRET_BYTES // 2:
        raise KeysError(f"line {number} of {path}: the secret is shorter than 16 bytes")
    return key


def new_key(name: str, principal: str) -> RequestKey:
    """Make a key of a principal, or of a gateway (`*`). Raises KeysError."""
    if not name or (principal != "*" and not all(principal.partition(":"))):
        raise KeysError("a key has a name, and a principal, TYPE:NAME or `*`")
    return RequestKey(name, principal, secrets.token_bytes(_SECRET_BYTES))


def add_key(path: Path, key: RequestKey) -> None:
    """Write a key into a file, which is made if it is not there. Raises KeysError."""
    with changing(path):
        present = read_keys(path) if path.exists() else []
        if key.name in {each.name for each in present}:
            raise KeysError(f"{path} has a key {key.name!r}: remove it first")
        _write(path, [*present, key])


def remove_key(path: Path, name: str) -> None:
    """Take a key out of a file. Raises KeysError if it is not in it."""
    with changing(path):
        present = read_keys(path)
        kept = [key for key in present if key.name != name]
        if len(kept) == len(present):
            raise KeysError(f"there is no key {name!r} in {path}")
        _write(path, kept)


def _write(path: Path, keys: Iterable[RequestKey]) -> None:
    write_private(path, map(msgspec.json.encode, keys))
