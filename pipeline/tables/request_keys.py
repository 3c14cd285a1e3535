"""The file of keys that sign requests (`coordinator.signatures`), one JSON object in each line.

A coordinator's file has the keys of all producers, a producer's file only its own. Keys are
secrets: only the owner can read a file, and no key is written to a table, checkpoint or log.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from group_coordinator.coordinator.signatures import RequestKey
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.private_file import changing, read_private, write_private
from group_coordinator.schemas.decoding import DECODE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECRET_BYTES = 32


class KeysError(Failure):
    """A file of keys that cannot be read, or a key that cannot be created, added or removed."""


def read_keys(path: str | Path) -> list[RequestKey]:
    """Return the keys of a file; raises KeysError that names the file or the malformed line."""
    try:
        lines = read_private(Path(path)).splitlines()
    except OSError as error:
        raise KeysError(f"the key file {path} cannot be read: {error.strerror}") from error
    return [_read_line(path, n, line) for n, line in enumerate(lines, 1) if line.strip()]


def read_key(path: str | Path) -> RequestKey:
    """Return the key of a producer's file; raises KeysError if it has not exactly one."""
    keys = read_keys(path)
    if len(keys) != 1:
        raise KeysError(f"{path} has {len(keys)} keys: a producer's file has exactly one")
    return keys[0]


def _read_line(path: str | Path, number: int, line: bytes) -> RequestKey:
    try:
        key = msgspec.json.decode(line, type=RequestKey)
    except DECODE_ERRORS:
        # The decoder's message may contain a part of the secret.
        raise KeysError(f"line {number} of {path} is not a valid key") from None
    if len(key.secret) < _SECRET_BYTES // 2:
        raise KeysError(f"line {number} of {path}: the secret is shorter than 16 bytes")
    return key


def new_key(name: str, principal: str) -> RequestKey:
    """Return a new key of a principal, or of a gateway (`*`).

    Raises KeysError if the name is empty or the principal is neither `TYPE:NAME` nor `*`.
    """
    if not name or (principal != "*" and not all(principal.partition(":"))):
        raise KeysError("a key requires a name and a principal, which is TYPE:NAME or `*`")
    return RequestKey(name, principal, secrets.token_bytes(_SECRET_BYTES))


def add_key(path: Path, key: RequestKey) -> None:
    """Add a key to a file, which is created if it does not exist.

    Raises KeysError if the file has a key of this name or cannot be read; OSError if it cannot be
    locked or written.
    """
    with changing(path):
        present = read_keys(path) if path.exists() else []
        if key.name in {each.name for each in present}:
            raise KeysError(f"{path} already has a key {key.name!r}: remove it first")
        _write(path, [*present, key])


def remove_key(path: Path, name: str) -> None:
    """Remove a key from a file.

    Raises KeysError if the file has no key of this name or cannot be read; OSError if it cannot be
    locked or written.
    """
    with changing(path):
        present = read_keys(path)
        kept = [key for key in present if key.name != name]
        if len(kept) == len(present):
            raise KeysError(f"there is no key {name!r} in {path}")
        _write(path, kept)


def _write(path: Path, keys: Iterable[RequestKey]) -> None:
    write_private(path, map(msgspec.json.encode, keys))
